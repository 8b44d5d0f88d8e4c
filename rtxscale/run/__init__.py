"""The sweep on a Ray cluster: sessions, telemetry actors, Tune, failures."""

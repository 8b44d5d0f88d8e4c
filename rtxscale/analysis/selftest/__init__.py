"""The instrument's checks, judged: equal arms, planted delays, ways of running, other instruments."""

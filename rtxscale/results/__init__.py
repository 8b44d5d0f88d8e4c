"""The Parquet tables of a run: schema, writer and reader."""

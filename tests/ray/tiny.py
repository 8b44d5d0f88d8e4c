"""Sweeps that take seconds, and what they left behind."""

from rtxscale.results.read import Run

TEXT = """\
name: {name}
question: Does a second worker pay off?
study: weak
workload: {{kind: vision, model: resnet18, image_size: 32, classes: 10, precision: fp32, batch_per_gpu: 2}}
axes:
  gpus: {gpus}
  ddp.bucket_mib: {buckets}
visits: 1
launcher: {launcher}
isolation: {isolation}
order: as_written
sentinels: {sentinels}
measure: {{warmup_min_s: 0.2, warmup_max_s: {warmup_max_s}, window_s: {window_s}, min_steps: 3, tolerance: 10}}
hardware: {{device: cpu}}
"""


def sweep_file(directory, name, **changes):
    """Write the sweep and return its path."""
    usual = {
        "gpus": "[1, 2]",
        "buckets": "[25]",
        "launcher": "ray",
        "isolation": "warm",
        "window_s": 0.3,
        "sentinels": "off",
    }
    path = directory / f"{name}.yaml"
    path.write_text(TEXT.format(name=name, **usual | {"warmup_max_s": 20} | changes))
    return path


def trials_of(run_dir):
    """Rows of the trials table, in the order they were written."""
    return Run.open(run_dir).frame("trials").sort("started_ns").collect().to_dicts()


def rows_of(run_dir, table):
    """Rows of another table."""
    return Run.open(run_dir).frame(table).collect().to_dicts()

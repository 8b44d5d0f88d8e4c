"""The tables of a run: every column with its type, unit, meaning, writer and reduction.

This is the waist of rtxscale: what measures and what interprets meet only here. `table()` builds a frame with the full
schema from rows, whatever the rows leave out; nothing else may build one. Bump `SCHEMA_VERSION` when a column's
meaning changes or a column goes; a new nullable column needs no bump.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1

TYPES: dict[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "strs": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
}


@dataclass(frozen=True)
class Column:
    """One column: `kind` is a key of `TYPES`; `reduction` says how rows of a trial combine into one number."""

    name: str
    kind: str
    unit: str
    meaning: str
    writer: str
    reduction: str = "none"


IDENTITY = (
    Column("trial_id", "str", "", "content hash of cell, visit, repeat and slot", "plan"),
    Column("attempt", "int", "", "1 for the first try of this trial id", "run"),
)

TRIALS = (
    *IDENTITY,
    Column("run_id", "str", "", "name of the run directory", "run"),
    Column("source", "str", "", "where a row is from: imported or simulated; null: measured by rtxscale", "run"),
    Column("sweep_id", "str", "", "content hash of the sweep", "plan"),
    Column("cell_id", "str", "", "content hash of the cell", "plan"),
    Column("session_id", "str", "", "the warm worker group that served the trial", "run"),
    Column("visit", "int", "", "which visit of the session key", "plan"),
    Column("repeat", "int", "", "which repeat within the visit", "plan"),
    Column("slot", "int", "", "which GPU of the pool a 1-GPU baseline ran on", "plan"),
    Column("stage", "str", "", "what it is for: sweep (null in old runs), sentinel or confirm", "plan"),
    Column("position", "int", "", "place in the session's order, from 0", "run"),
    Column("environment_id", "str", "", "hash of the measured software and hardware", "run"),
    Column("study", "str", "", "weak, strong or both, as declared", "plan"),
    Column("cell_json", "str", "", "the cell as canonical JSON", "plan"),
    Column("axes_json", "str", "", "dotted path -> value of each axis, as JSON", "plan"),
    Column("workload", "str", "", "label of the workload", "plan"),
    Column("gpus", "int", "", "workers: GPUs, or CPU workers", "plan"),
    Column("nodes", "int", "", "machines the workers were on", "run"),
    Column("node_names", "strs", "", "node of each worker, by rank", "run"),
    Column("gpus_per_node", "int", "", "workers on each machine, where the sweep says so", "plan"),
    Column("placement", "str", "", "asked: packed, spread or a class of links", "plan"),
    Column("link_class", "str", "", "worst link between the used GPUs; null where not known", "run"),
    Column("device", "str", "", "cuda or cpu", "rank"),
    Column("threads", "int", "", "CPU threads of each worker; null where not recorded", "rank"),
    Column("device_names", "strs", "", "distinct GPU or CPU model names", "rank"),
    Column("gpu_uuids", "strs", "", "UUID of each worker's GPU, by rank", "rank"),
    Column("batch_per_gpu", "int", "samples", "work per worker and step", "plan"),
    Column("global_batch", "int", "samples", "work of all workers per step", "plan"),
    Column("precision", "str", "", "declared precision", "plan"),
    Column("compile", "str", "", "declared torch.compile mode", "plan"),
    Column("nccl_algorithm", "str", "", "asked of NCCL; auto leaves it to NCCL", "plan"),
    Column("nccl_channels", "str", "", "asked of NCCL: auto or a number", "plan"),
    Column("nccl_protocol", "str", "", "asked of NCCL", "plan"),
    Column("nccl_p2p", "str", "", "asked of NCCL: auto or disabled", "plan"),
    Column("ddp_bucket_mib", "str", "MiB", "bucket cap: auto or a number", "plan"),
    Column("isolation", "str", "", "warm or process", "plan"),
    Column("launcher", "str", "", "ray or torchrun", "plan"),
    Column("profile", "str", "", "measurement profile; quick is not publishable", "plan"),
    Column("outcome", "str", "", "how the trial ended; see results.outcomes", "run"),
    Column("flags", "strs", "", "remarks on an ok trial beyond those the analysis derives", "run"),
    Column("message", "str", "", "why it is not ok, one line", "run"),
    Column("started_ns", "int", "ns", "Unix time when the order was handed out", "run"),
    Column("ended_ns", "int", "ns", "Unix time when every rank had answered", "run"),
    Column("wall_s", "float", "s", "ended minus started", "run"),
    Column("session_start_s", "float", "s", "start-up of its session; on the first trial only", "run", "sum"),
    Column("build_s", "float", "s", "model, communicator and DDP set-up on rank 0", "rank", "mean"),
    Column("first_step_s", "float", "s", "first step on rank 0, compilation included", "rank", "mean"),
    Column("soak_s", "float", "s", "soak before this trial", "rank", "sum"),
    Column("warmup_s", "float", "s", "warm-up after build, first step included", "rank", "mean"),
    Column("warmup_steps", "int", "steps", "steps of the warm-up", "rank"),
    Column("steady", "bool", "", "the steady-state criterion held", "rank"),
    Column("steady_criterion", "str", "", "criterion and its parameters", "rank"),
    Column("load_s", "float", "s", "the session's seconds under load before the window, pauses left out", "rank"),
    Column(
        "temperature_slope", "float", "degC/min", "steepest slope of a used GPU's temperature, end of warm-up", "rank"
    ),
    Column(
        "sm_clock_slope", "float", "1/min", "steepest relative slope of a used GPU's SM clock, end of warm-up", "rank"
    ),
    Column("window_s", "float", "s", "barrier to barrier wall time of the window on rank 0", "rank", "mean"),
    Column("window_steps", "int", "steps", "steps in the window", "rank"),
    Column("window_start_ns", "int", "ns", "Unix time at the window's first barrier", "rank"),
    Column("window_end_ns", "int", "ns", "Unix time at the window's last barrier", "rank"),
    Column(
        "outside_s",
        "float",
        "s",
        "wall time that is neither soak, warm-up, window, collectives, no_sync arm nor run to the target",
        "run",
        "median",
    ),
    Column("collectives_s", "float", "s", "time spent on the collectives probe", "rank", "sum"),
    Column("no_sync_s", "float", "s", "time spent on the no_sync arm of a loss budget", "rank", "sum"),
    Column("work", "float", "samples", "work of all ranks in the window", "rank", "sum"),
    Column("work_unit", "str", "", "image, token, sample", "rank"),
    Column("flops_per_work", "float", "FLOP", "model FLOPs of a unit of work, without recomputation", "rank"),
    Column("roof_tflops", "float", "TFLOP/s", "matrix products on each GPU, measured in the session", "rank", "mean"),
    Column("throughput_per_s", "float", "work/s", "work / window_s", "rank", "mean"),
    Column("step_time_mean_s", "float", "s", "mean step time over ranks and steps of the window", "rank", "mean"),
    Column("step_time_p50_s", "float", "s", "median step time", "rank", "mean"),
    Column("step_time_p95_s", "float", "s", "95th percentile of step time", "rank", "mean"),
    Column(
        "host_bound_share",
        "float",
        "1",
        "share of window steps whose GPU work was all but done when the host had enqueued it",
        "rank",
        "mean",
    ),
    Column(
        "input_share",
        "float",
        "1",
        "share of the window in which the device had nothing to do for want of input",
        "rank",
        "mean",
    ),
    Column(
        "skipped_steps",
        "int",
        "steps",
        "steps of the window whose update gradient scaling skipped; null: none can",
        "rank",
    ),
    Column("loss_last", "float", "", "mean loss over ranks at the window's last step", "rank"),
    Column("seed", "int", "", "seed of first weights and order of data in the run to a target", "rank"),
    Column("target_reached", "bool", "", "the run to the target got there; null without a target", "rank"),
    Column("target_value", "float", "", "the target's metric when it was looked at last", "rank"),
    Column("target_steps", "int", "steps", "steps of the run to the target", "rank"),
    Column("target_work", "float", "samples", "work of all ranks in it", "rank"),
    Column("target_s", "float", "s", "its seconds of training, evaluation and compilation left out", "rank"),
    Column("target_evaluation_s", "float", "s", "its seconds of evaluation", "rank", "sum"),
    Column("target_run_s", "float", "s", "its wall time, with restart, first step and evaluation", "rank", "sum"),
    Column("memory_peak_mib", "float", "MiB", "largest allocated GPU memory of any rank in the window", "rank", "max"),
    Column("memory_reserved_mib", "float", "MiB", "largest reserved GPU memory of any rank", "rank", "max"),
    Column("power_w", "float", "W", "mean power of the used GPUs together over the window", "run", "mean"),
    Column("energy_j", "float", "J", "energy of the used GPUs over the window", "run", "mean"),
    Column("energy_source", "str", "", "counter or integral", "run"),
    Column("energy_counter_j", "float", "J", "by the energy counter; null where there is none", "run", "mean"),
    Column("energy_updates", "float", "", "steps of the slowest energy counter in the window", "run", "mean"),
    Column("energy_integral_j", "float", "J", "by integrating power samples; null with too few", "run", "mean"),
    Column(
        "wall_power_w", "float", "W", "mean power at the wall over the window, GPU power not taken off", "run", "mean"
    ),
    Column("wall_energy_j", "float", "J", "energy at the wall over the window", "run", "mean"),
    Column("wall_source", "str", "", "ipmi, redfish, csv or command; null without a meter", "run"),
    Column("temperature_max_c", "float", "degC", "hottest used GPU in the window", "run", "max"),
    Column("sm_clock_mhz", "float", "MHz", "mean SM clock of the used GPUs in the window", "run", "mean"),
    Column(
        "throttle_share",
        "float",
        "1",
        "share of the window with a thermal or power-brake slowdown, mean of GPUs",
        "run",
        "mean",
    ),
    Column(
        "power_cap_share", "float", "1", "share of the window at the software power cap, mean of GPUs", "run", "mean"
    ),
    Column("gpu_busy_share", "float", "1", "utilisation of the least used GPU, mean over the window", "run", "mean"),
)

STEPS = (
    *IDENTITY,
    Column("rank", "int", "", "rank of the worker", "rank"),
    Column("step", "int", "", "from 0 at the first step after build", "rank"),
    Column("phase", "str", "", "first, soak, warmup, window or no_sync", "rank"),
    Column("step_time_s", "float", "s", "CUDA events on GPUs, host clock on CPU", "rank", "mean"),
    Column("input_s", "float", "s", "waiting for input; on a GPU only where it had run dry by then", "rank", "mean"),
)

COLLECTIVES = (
    *IDENTITY,
    Column("operation", "str", "", "collective", "rank"),
    Column("size_bytes", "int", "B", "message size as nccl-tests counts it", "rank"),
    Column("dtype", "str", "", "element type", "rank"),
    Column("iterations", "int", "", "timed repetitions", "rank"),
    Column("time_mean_s", "float", "s", "mean time of one operation, slowest rank", "rank", "mean"),
    Column("time_p50_s", "float", "s", "median time of one operation", "rank", "mean"),
    Column("time_p95_s", "float", "s", "95th percentile", "rank", "mean"),
    Column("algbw_gb_s", "float", "GB/s", "size / mean time", "rank", "mean"),
    Column("busbw_gb_s", "float", "GB/s", "algbw times the operation's bus factor", "rank", "mean"),
    Column("data_ok", "bool", "", "the result was checked and right; null when not checked", "rank"),
)

TELEMETRY = (
    Column("trial_id", "str", "", "trial running at the time; null between trials", "run"),
    Column("attempt", "int", "", "its attempt", "run"),
    Column("session_id", "str", "", "session running at the time", "run"),
    Column("node", "str", "", "node id", "telemetry"),
    Column("device", "str", "", "gpu, host, or wall for a power meter", "telemetry"),
    Column("uuid", "str", "", "GPU UUID; null for the host", "telemetry"),
    Column("t_ns", "int", "ns", "Unix time of the sample by the driver's clock", "telemetry"),
    Column("monotonic_ns", "int", "ns", "monotonic time of the sample on its node", "telemetry"),
    Column("clock_offset_s", "float", "s", "its node's clock minus the driver's, taken off `t_ns`", "run"),
    Column("clock_error_s", "float", "s", "most that this offset can be wrong by", "run"),
    Column("power_w", "float", "W", "GPU power draw, instantaneous where exposed", "telemetry", "mean"),
    Column("power_average_w", "float", "W", "GPU power draw averaged by the driver over 1 s", "telemetry", "mean"),
    Column("wall_power_w", "float", "W", "power at the wall, in rows of their own (device wall)", "run", "mean"),
    Column("energy_j", "float", "J", "total energy counter of the GPU", "telemetry", "last-first"),
    Column("energy_update_s", "float", "s", "time between two steps of that counter, as seen at first", "telemetry"),
    Column("temperature_c", "float", "degC", "GPU core temperature", "telemetry", "max"),
    Column("memory_temperature_c", "float", "degC", "GPU memory temperature", "telemetry", "max"),
    Column("fan_percent", "float", "%", "fan speed", "telemetry", "mean"),
    Column("sm_clock_mhz", "float", "MHz", "SM clock", "telemetry", "mean"),
    Column("memory_clock_mhz", "float", "MHz", "memory clock", "telemetry", "mean"),
    Column("throttle_reasons", "strs", "", "active clock event reasons by name", "telemetry"),
    Column("performance_state", "int", "", "P-state", "telemetry"),
    Column("utilisation", "float", "1", "busy share of GPU or host CPUs", "telemetry", "mean"),
    Column("memory_used_mib", "float", "MiB", "used GPU or host memory", "telemetry", "max"),
    Column("pcie_generation", "int", "", "current link generation", "telemetry"),
    Column("pcie_width", "int", "lanes", "current link width", "telemetry"),
    Column("pcie_rx_mb_s", "float", "MB/s", "PCIe receive throughput", "telemetry", "mean"),
    Column("pcie_tx_mb_s", "float", "MB/s", "PCIe transmit throughput", "telemetry", "mean"),
    Column("pcie_replays", "int", "", "PCIe packets sent again, counted by the GPU", "telemetry", "last-first"),
    Column("hotspot_temperature_c", "float", "degC", "hottest point of the GPU, where exposed", "telemetry", "max"),
    Column(
        "ecc_corrected", "int", "", "corrected memory errors since the driver was loaded", "telemetry", "last-first"
    ),
    Column("ecc_uncorrected", "int", "", "uncorrected memory errors since then", "telemetry", "last-first"),
    Column("remapped_rows", "int", "", "memory rows replaced by spare ones, ever", "telemetry", "max"),
    Column("xids", "ints", "", "Xid errors that the driver reported since the sample before", "telemetry"),
    Column("processes", "int", "", "compute processes on the GPU", "telemetry", "max"),
)

BUCKETS = (
    *IDENTITY,
    Column("bucket", "int", "", "place in the order of reduction, from 0", "rank"),
    Column("size_bytes", "int", "B", "gradient bytes in the bucket", "rank"),
    Column("parameters", "int", "", "parameter tensors in the bucket", "rank"),
)

ATTESTATION = (
    *IDENTITY,
    Column("subject", "str", "", "setting, such as nccl.algorithm", "rank"),
    Column("requested", "str", "", "what was asked", "plan"),
    Column("observed", "str", "", "what was seen; null if nothing was", "rank"),
    Column("verdict", "str", "", "honoured, refuted, not attested or not applicable", "rank"),
    Column("evidence", "str", "", "where it was seen", "rank"),
)

ENVIRONMENT = (
    Column("environment_id", "str", "", "hash of the measured software and hardware", "run"),
    Column("node", "str", "", "node id", "run"),
    Column("subject", "str", "", "software, gpu, host, setting", "run"),
    Column("name", "str", "", "such as torch or driver", "run"),
    Column("value", "str", "", "as read; unknown is written out", "run"),
)

LOGS = (
    *IDENTITY,
    Column("source", "str", "", "who wrote it: nccl, trace (of a failure) or driver (of the sweep)", "run"),
    Column("rank", "int", "", "rank that wrote it; null for the driver of the sweep", "rank"),
    Column("place", "int", "", "place among the lines of its writer, from 0", "rank"),
    Column("line", "str", "", "one distinct line; ids, addresses and times of NCCL's are blanked", "rank"),
    Column("count", "int", "", "how often it was written", "rank", "sum"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "trials": TRIALS,
    "steps": STEPS,
    "collectives": COLLECTIVES,
    "telemetry": TELEMETRY,
    "buckets": BUCKETS,
    "attestation": ATTESTATION,
    "environment": ENVIRONMENT,
    "logs": LOGS,
}


def arrow_schema(name: str) -> pa.Schema:
    """Arrow schema of the table, with the schema version in its metadata."""
    fields = [pa.field(column.name, TYPES[column.kind]) for column in TABLES[name]]
    return pa.schema(
        fields, metadata={b"rtxscale_schema": str(SCHEMA_VERSION).encode(), b"rtxscale_table": name.encode()}
    )


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table with exactly the columns of the schema; missing values are null.

    Raises:
        KeyError: a row has a column the schema does not know.
    """
    rows = list(rows)
    known = {column.name for column in TABLES[name]}
    unknown = {key for row in rows for key in row} - known
    if unknown:
        raise KeyError(f"table {name} has no column {', '.join(sorted(unknown))}")
    return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(name))


def table_from_columns(name: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """Columns as an Arrow table with exactly the schema's columns: the fast way for many rows.

    A column is a sequence or array of `rows` values, or one value that all rows share; missing columns are null.

    Raises:
        KeyError: a column the schema does not know.
        ValueError: a column has another length.
    """
    schema = arrow_schema(name)
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise KeyError(f"table {name} has no column {', '.join(sorted(unknown))}")
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        shared = value is None or isinstance(value, str | int | float)
        array = pa.repeat(pa.scalar(value, field.type), rows) if shared else pa.array(value, field.type)
        if len(array) != rows:
            raise ValueError(f"table {name}: column {field.name} has {len(array)} values, expected {rows}")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)

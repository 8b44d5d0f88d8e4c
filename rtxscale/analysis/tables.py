"""The tables that the analysis concludes: every column with its type, and what it means.

Filled all over `analysis`, gathered in `conclusions.Conclusions`; `report` and the notebook document columns from here.
"""

from __future__ import annotations

import polars as pl

CELLS: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),  # the cell's axis values in words, such as "gpus 2, ring, 8 channels"
    "workload": pl.String(),
    "gpus": pl.Int64(),
    "batch_per_gpu": pl.Int64(),
    "global_batch": pl.Int64(),
    "is_default": pl.Boolean(),  # every communication setting is auto
    "work_unit": pl.String(),
    "sessions": pl.Int64(),  # replicates
    "trials": pl.Int64(),  # counted trials
    "throughput_per_s": pl.Float64(),
    "throughput_low": pl.Float64(),  # 95 % interval over sessions; null with one session
    "throughput_high": pl.Float64(),
    "step_time_p50_s": pl.Float64(),
    "power_w": pl.Float64(),
    "temperature_max_c": pl.Float64(),
    "memory_peak_mib": pl.Float64(),
    "flags": pl.String(),  # distinct flags of its trials, joined with ", "
}
"""Cells with at least one counted trial, plus one column per axis, named `axis:<dotted path>` (String)."""

EFFICIENCY: dict[str, pl.DataType] = {
    "curve": pl.String(),  # weak or strong
    "series": pl.String(),  # what is held constant along the curve, in words, such as "ring, 8 channels"
    "is_default": pl.Boolean(),
    "cell_id": pl.String(),
    "gpus": pl.Int64(),
    "base_gpus": pl.Int64(),
    "base_cell_id": pl.String(),
    "visits": pl.Int64(),  # of the cell or of its base, whichever has fewer
    "throughput_per_s": pl.Float64(),
    "throughput_low": pl.Float64(),
    "throughput_high": pl.Float64(),
    "speedup": pl.Float64(),  # T(N)/T(N0)
    "efficiency": pl.Float64(),
    "efficiency_low": pl.Float64(),
    "efficiency_high": pl.Float64(),
    "extra_gpu": pl.Float64(),  # (S-1)/(N/N0-1); null at N0
    "note": pl.String(),  # "relative to 2 GPUs", "superlinear: ...", "needs >= 2 visits"
    "sm_clock_mhz": pl.Float64(),  # mean of trials without a slowdown
    "equal_clocks": pl.Float64(),  # efficiency of throughput per SM clock, trials without a slowdown
    "equal_clocks_low": pl.Float64(),
    "equal_clocks_high": pl.Float64(),
}

THROTTLING: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "is_default": pl.Boolean(),
    "reason": pl.String(),  # clock event reason, as NVML names it
    "share": pl.Float64(),  # of the window in which it was active, mean over the used GPUs and over trials
    "most": pl.Float64(),  # the largest share of any trial
    "trials": pl.Int64(),
}

SANITY: dict[str, pl.DataType] = {
    "rule": pl.String(),
    "cell_id": pl.String(),
    "gpus": pl.Int64(),
    "status": pl.String(),  # as expected, outside, or context: the rule's conditions are not met
    "found": pl.Float64(),
    "expected_low": pl.Float64(),
    "expected_high": pl.Float64(),
    "words": pl.String(),
    "expectation": pl.String(),
    "conditions": pl.String(),
    "source": pl.String(),
}

MFU: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "is_default": pl.Boolean(),
    "device_name": pl.String(),
    "precision": pl.String(),
    "flops_per_work": pl.Float64(),  # FLOP, without recomputation
    "peak_tflops": pl.Float64(),  # documented dense peak of one card in the trial's precision, fp32 accumulation
    "roof_tflops": pl.Float64(),  # matrix products on one card, as measured in the sessions; can exceed the peak
    "mfu": pl.Float64(),
    "mfu_low": pl.Float64(),
    "mfu_high": pl.Float64(),
    "roof_utilisation": pl.Float64(),  # against the measured roof, in the trial's own precision
    "roof_utilisation_low": pl.Float64(),
    "roof_utilisation_high": pl.Float64(),
    "visits": pl.Int64(),
    "note": pl.String(),  # why there is no MFU
    "source": pl.String(),  # of the peak
}

CARDS: dict[str, pl.DataType] = {
    "cell_id": pl.String(),  # of the 1-GPU baseline
    "label": pl.String(),
    "slot": pl.Int64(),
    "uuid": pl.String(),
    "device_name": pl.String(),
    "work_unit": pl.String(),
    "throughput_per_s": pl.Float64(),
    "throughput_low": pl.Float64(),
    "throughput_high": pl.Float64(),
    "visits": pl.Int64(),
    "of_fastest": pl.Float64(),  # throughput / that of the fastest card
    "sm_clock_mhz": pl.Float64(),
    "power_w": pl.Float64(),
    "temperature_max_c": pl.Float64(),
}

BEST: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "curve": pl.String(),
    "cell_id": pl.String(),
    "default_cell_id": pl.String(),  # null where the default cell has no result
    "label": pl.String(),
    "throughput_per_s": pl.Float64(),
    "default_throughput_per_s": pl.Float64(),
    "visits": pl.Int64(),  # that have both; null for the default itself
    "gain": pl.Float64(),  # selected, not confirmed: best / default - 1, over the visits that have both
    "gain_low": pl.Float64(),
    "gain_high": pl.Float64(),
    "verdict": pl.String(),  # "measured faster ... (unconfirmed)", "not separable ...", "confirmed faster", ...
}

CONFIRMED: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "curve": pl.String(),
    "cell_id": pl.String(),  # as selected when it was first confirmed
    "default_cell_id": pl.String(),
    "label": pl.String(),
    "visits": pl.Int64(),  # sessions of the confirmation that have both; none counts 0
    "gain": pl.Float64(),  # selected / default - 1, over the confirmation's sessions alone
    "gain_low": pl.Float64(),
    "gain_high": pl.Float64(),
    "p_holm": pl.Float64(),  # over all confirmed cells of the run
    "selected_gain": pl.Float64(),  # the same ratio in the sweep that selected the cell: too high on average
    "verdict": pl.String(),  # confirmed faster, confirmed slower, not confirmed, needs >= 2 visits
}

EFFECTS: dict[str, pl.DataType] = {
    "axis": pl.String(),
    "gpus": pl.Int64(),
    "value": pl.String(),
    "reference": pl.String(),
    "pairs": pl.Int64(),  # otherwise equal cells compared, within sessions where they share one; in every visit
    "pairs_left_out": pl.Int64(),  # pairs that some visit lacks
    "sessions": pl.Int64(),
    "ratio": pl.Float64(),  # throughput of value / reference, geometric mean of pairs
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),  # faster, slower, not separable, needs >= 2 visits
}

INTERACTIONS: dict[str, pl.DataType] = {
    "axis": pl.String(),
    "value": pl.String(),
    "reference": pl.String(),
    "other_axis": pl.String(),
    "other_value": pl.String(),
    "other_reference": pl.String(),
    "gpus": pl.Int64(),
    "quads": pl.Int64(),  # sets of four otherwise equal cells, in every visit
    "quads_left_out": pl.Int64(),  # sets that some visit lacks
    "sessions": pl.Int64(),
    "ratio": pl.Float64(),  # effect of value with other_value / effect of value with other_reference; 1 is none
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),  # "together more than apart", "together less than apart", not separable, needs >= 2 visits
}

OBJECTIVES: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "curve": pl.String(),
    "objective": pl.String(),  # throughput, perf/W, perf/money
    "cell_id": pl.String(),
    "label": pl.String(),
    "value": pl.Float64(),
    "unit": pl.String(),  # such as images/s, images/J or images/EUR
    "default_value": pl.Float64(),
    "visits": pl.Int64(),
    "gain": pl.Float64(),  # selected, not confirmed
    "gain_low": pl.Float64(),
    "gain_high": pl.Float64(),
    "verdict": pl.String(),
}

COST: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "is_default": pl.Boolean(),
    "unit": pl.String(),  # of work: image, token
    "throughput_per_s": pl.Float64(),
    "visits": pl.Int64(),
    "power_w": pl.Float64(),  # of the used GPUs together, as sampled
    "energy_per_work_j": pl.Float64(),  # J per unit of work, GPU-only, geometric mean over visits
    "energy_per_work_low": pl.Float64(),
    "energy_per_work_high": pl.Float64(),
    "work_per_j": pl.Float64(),  # perf/W: work per second and watt of the used GPUs alone
    "wall_power_w": pl.Float64(),  # at the wall, beside GPU power and never added to it; null without a meter
    "wall_energy_per_work_j": pl.Float64(),  # J at the wall per unit of work, geometric mean over visits
    "wall_energy_per_work_low": pl.Float64(),
    "wall_energy_per_work_high": pl.Float64(),
    "currency": pl.String(),
    "work_per_money": pl.Float64(),  # from a declared price only
    "work_per_money_low": pl.Float64(),
    "work_per_money_high": pl.Float64(),
    "note": pl.String(),  # why a number is missing
}

BANDWIDTH: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "operation": pl.String(),
    "size_bytes": pl.Int64(),
    "trials": pl.Int64(),
    "visits": pl.Int64(),
    "time_p50_s": pl.Float64(),
    "algbw_gb_s": pl.Float64(),
    "busbw_gb_s": pl.Float64(),
    "busbw_low": pl.Float64(),
    "busbw_high": pl.Float64(),
}

PLACEMENTS: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "placement": pl.String(),  # in words, such as "same root" or "2 nodes of 4"
    "link_class": pl.String(),  # of the GPUs that were used; null where not known
    "nodes": pl.Int64(),  # that were used
    "reference": pl.String(),  # the placement whose GPUs are closest together
    "reference_class": pl.String(),
    "pairs": pl.Int64(),  # otherwise equal cells compared, in every visit
    "pairs_left_out": pl.Int64(),
    "sessions": pl.Int64(),
    "ratio": pl.Float64(),  # throughput of placement / reference, geometric mean of pairs
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "penalty": pl.Float64(),  # 1 - ratio
    "p_holm": pl.Float64(),  # over the placements of a GPU count
    "verdict": pl.String(),  # faster, slower, not separable, needs >= 2 visits
}
"""Placements of equal GPU counts against the closest one, closest first."""

NODES: dict[str, pl.DataType] = {
    "curve": pl.String(),
    "series": pl.String(),
    "is_default": pl.Boolean(),
    "cell_id": pl.String(),
    "gpus": pl.Int64(),
    "nodes": pl.Int64(),
    "gpus_per_node": pl.Int64(),
    "node_cell_id": pl.String(),  # the cell on one node with as many GPUs as each node here
    "visits": pl.Int64(),  # of the cell or of that one, whichever has fewer
    "efficiency": pl.Float64(),  # of all GPUs over one GPU: within times across
    "within": pl.Float64(),  # of one node's GPUs over one GPU
    "within_low": pl.Float64(),
    "within_high": pl.Float64(),
    "across": pl.Float64(),  # of all nodes over one node
    "across_low": pl.Float64(),
    "across_high": pl.Float64(),
    "note": pl.String(),
}
"""Cells on several nodes: how much of the efficiency is lost in a node and how much between nodes."""

FITS: dict[str, pl.DataType] = {
    "law": pl.String(),  # Karp-Flatt, Amdahl, USL (strong); Gustafson (weak); alpha-beta (collectives)
    "curve": pl.String(),
    "series": pl.String(),  # of the curve; the cell's label for a collective
    "is_default": pl.Boolean(),
    "cell_id": pl.String(),  # where the number belongs to one cell
    "gpus": pl.Int64(),
    "operation": pl.String(),
    "algorithm": pl.String(),  # as seen in NCCL's log, else as asked
    "protocol": pl.String(),
    "parameter": pl.String(),  # serial share, contention, coherency, latency, bus bandwidth
    "unit": pl.String(),
    "value": pl.Float64(),  # null where there is no fit; `note` says why
    "low": pl.Float64(),
    "high": pl.Float64(),
    "sizes": pl.Int64(),  # distinct GPU counts or message sizes
    "points": pl.Int64(),
    "scatter": pl.Float64(),  # relative standard deviation of the points from the law
    "note": pl.String(),
    "source": pl.String(),
}

BUDGET: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "curve": pl.String(),
    "cell_id": pl.String(),
    "label": pl.String(),
    "is_default": pl.Boolean(),
    "part": pl.String(),  # ideal step, then what is lost, then measured step: `analysis.budget.PARTS`
    "seconds_per_step": pl.Float64(),
    "low": pl.Float64(),  # 95 % interval over sessions
    "high": pl.Float64(),
    "share": pl.Float64(),  # of the measured step
    "sessions": pl.Int64(),  # of the cell
    "note": pl.String(),  # why there is no number, or what it includes
}
"""Loss budgets of the cells that asked for one, in the order of a waterfall."""

DRIFT: dict[str, pl.DataType] = {
    "session_id": pl.String(),
    "gpus": pl.Int64(),
    "visit": pl.Int64(),
    "sentinels": pl.Int64(),  # that count
    "minutes": pl.Float64(),  # from the first to the last of them
    "drift": pl.Float64(),  # last / first - 1
    "spread": pl.Float64(),  # largest / smallest - 1
    "threshold": pl.Float64(),  # of the spread
    "verdict": pl.String(),  # within, drifting, needs >= 2 sentinels
}
"""Sessions with sentinels, in the order they began."""

SENTINELS: dict[str, pl.DataType] = {
    "session_id": pl.String(),
    "gpus": pl.Int64(),
    "visit": pl.Int64(),
    "trial_id": pl.String(),
    "cell_id": pl.String(),
    "place": pl.Int64(),  # 1 start, 2 middle, 3 end, as planned
    "minutes": pl.Float64(),  # since the session's first sentinel
    "quantity": pl.String(),  # throughput, or which bus bandwidth
    "value": pl.Float64(),
    "unit": pl.String(),  # work unit of a throughput, GB/s of a bandwidth
    "change": pl.Float64(),  # value / mean of the session's sentinels - 1
}
"""Sentinels that count, in order of time within each session."""

TARGETS: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "global_batch": pl.Int64(),
    "runs": pl.Int64(),  # that went for the target, each with a seed of its own
    "reached": pl.Int64(),
    "median_s": pl.Float64(),  # over all runs, those that did not get there above the others; null: not known
    "median_steps": pl.Float64(),
    "median_work": pl.Float64(),
    "work_unit": pl.String(),
    "not_reached_s": pl.Float64(),  # the shortest time after which a run was stopped
}
"""Cells with a target, by GPU count."""

OUTCOMES: dict[str, pl.DataType] = {
    "stage": pl.String(),  # what the trials were measured for: sweep, sentinel, confirm
    "outcome": pl.String(),
    "trials": pl.Int64(),
    "example": pl.String(),  # a trial id
    "message": pl.String(),  # its message
}

RETRIES: dict[str, pl.DataType] = OUTCOMES
"""How the attempts ended that were followed by another one at the same trial; `trials` counts attempts."""

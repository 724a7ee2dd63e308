"""The object of `status --json` as text for people. Must not read anything itself."""

from __future__ import annotations

from typing import Any

from gpufence.config import figures, terms
from gpufence.console import screen
from gpufence.container import called
from gpufence.errors import one_line
from gpufence.machine.people import Pod

_HEAD = ("NAME", "GPU", "PROCESSES", "USED", "LIMIT", "CORE-LIMIT", "REFUSED", "STATE")
_SHARES = {"cores_millipercent": "cores", "soft_cores_millipercent": "soft cores"}
_PROCESS_HEAD = ("PID", "USER", "USED", "OVERHEAD", "REFUSED", "COMMAND")


def table(states: list[dict[str, Any]], color: str = "never") -> list[str]:
    """One line for each container and GPU; `color` as --color has it."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for state in states:
        life = state["state"] + (", frozen" if state["frozen"] else "")
        if not state["gpus"]:
            amounts = state["set"].get("all", {})
            limits = _set_memory(amounts), _set_cores(amounts)
            processes = str(len(state["processes"]))
            rows.append((name_of(state), "-", processes, "-", *limits, "-", life))
        rows += [
            (
                name_of(state),
                str(gpu["gpu"]),
                str(len(gpu["processes"])),
                figures.size(gpu["memory"]["used_bytes"]),
                _limit(gpu),
                _cores(gpu),
                str(gpu["refusals"]),
                life,
            )
            for gpu in state["gpus"]
        ]
    return screen.table(
        [[_cell(rows[0][n], text) for n, text in enumerate(row)] for row in rows], color
    )


def _cell(column: str, text: str) -> screen.Cell:
    """A cell in the colours of `gpufence top`."""
    styles = {
        "REFUSED": "" if text in ("0", "-", "REFUSED") else "red",
        "STATE": {"ended": "dim", "prepared": "dim"}.get(
            text, "yellow" if "frozen" in text else ""
        ),
    }
    return text, styles.get(column, "")


def name_of(state: dict[str, Any]) -> str:
    """What people call it, here and in every other command."""
    names = state["called"] or {}
    pod = Pod(names.get("pod", ""), names.get("namespace", ""), names.get("container", ""))
    return called.shown(str(state["name"]), pod)


def details(state: dict[str, Any], color: str = "never") -> list[str]:
    """Everything about one container; `color` as --color has it."""
    life = "running" if state["running"] else "not running"
    if not state["region"]:
        life = "no program of it has used a GPU yet"
    lines = [f"{name_of(state)}: {life}{', frozen' if state['frozen'] else ''}"]
    if name_of(state) != state["name"]:
        lines.append(f"  files of '{state['name']}'")
    for name, amounts in state["set"].items():
        lines.append(f"  set for {name}: {_set_text(amounts)}")
    for gpu in state["gpus"]:
        lines += ["", f"GPU {gpu['gpu']}  {gpu['uuid']}", *_gpu_lines(gpu, color)]
    return lines


def change_line(change: dict[str, Any]) -> str:
    """One line of the history."""
    who = f"{change['sudo_user']} as {change['user']}" if "sudo_user" in change else change["user"]
    now = "; ".join(f"{gpu}: {_set_text(each)}" for gpu, each in change["new"].items())
    text = one_line(f"{change['time']}  {who}  {now or 'taken back'}")
    return text if change["held"] else f"{text}  (never held: the command was killed)"


def _gpu_lines(gpu: dict[str, Any], color: str) -> list[str]:
    memory, cores = gpu["memory"], gpu["cores"]
    whose = {
        "set": " (set)",
        "ceiling": " (an operator's file, below what is set)",
        "environment": "",
        None: "",
    }
    limit = _limit(gpu)
    if limit == "-":
        limit = "a limit that is not known while no program runs"
    lines = [
        f"  memory    {figures.size(memory['used_bytes'])} of {limit}"
        f"{whose[memory['limit_from']]}, overhead {figures.size(memory['overhead_bytes'])} of it"
    ]
    if memory["oversold"]:
        most = memory["device_limit_bytes"]
        share = f" of {figures.exact(most)}" if most else ""
        device, unified = (
            figures.size(memory["device_bytes"]),
            figures.size(memory["unified_bytes"]),
        )
        lines.append(f"            {device}{share} on the device, {unified} unified, on the host")
    if memory["orphan_bytes"]:
        lines.append(
            f"            {figures.size(memory['orphan_bytes'])} charged to no program: imported,"
            " or behind an open descriptor"
        )
    if memory["over_bytes"]:
        lines.append(f"            {figures.size(memory['over_bytes'])} over: requests are refused")
    plural = "" if gpu["refusals"] == 1 else "s"
    lines.append(f"  refused   {gpu['refusals']} request{plural} for memory")
    if not gpu["cores_known"] and gpu["processes"]:
        lines.append("  cores     unknown: a program's files cannot be read (try as root)")
    if cores:
        lines.append(f"  cores     {_share(cores)}{whose[cores['share_from']]}")
        used, held = figures.duration(cores["used_ns"]), figures.duration(cores["held_ns"])
        lines.append(f"            used {used}, held {held} in {cores['launches_held']} launches")
        if cores["turn"]:
            lines.append(f"  turn      {cores['turn']}")
    rows: list[tuple[str, ...]] = [_PROCESS_HEAD]
    rows += [
        (
            f"{process['pid']}{'*' if process['foreign_pid'] else ''}",
            process["user"],
            figures.size(process["used_bytes"]),
            figures.size(process["overhead_bytes"]),
            str(process["refusals"]),
            (process["command"] or "?")[:60],
        )
        for process in gpu["processes"]
    ]
    if len(rows) > 1:
        cells = [[_cell(rows[0][n], text) for n, text in enumerate(row)] for row in rows]
        lines += [f"  {line}" for line in screen.table(cells, color)]
    if any(process["foreign_pid"] for process in gpu["processes"]):
        lines.append("  * the number in the container's own pid namespace")
    return lines


def _limit(gpu: dict[str, Any]) -> str:
    memory = gpu["memory"]
    if not gpu["processes"] and memory["limit_from"] is None:
        return "-"
    if memory["limit_percent_billionths"]:
        return f"{memory['limit_percent_billionths'] / 10**9:.12g} % of the GPU"
    return figures.exact(memory["limit_bytes"]) if memory["limit_bytes"] else "no limit"


def _cores(gpu: dict[str, Any]) -> str:
    if gpu["cores"]:
        return _share(gpu["cores"])
    if gpu["cores_known"]:
        return "no limit"
    return "unknown" if gpu["processes"] else "-"


def _share(cores: dict[str, Any]) -> str:
    hard, soft = cores["share_millipercent"], cores["soft_share_millipercent"]
    return figures.share(hard) + (f", soft {figures.share(soft)}" if soft > hard else "")


def _set_memory(amounts: dict[str, int]) -> str:
    if "memory_percent_billionths" in amounts:
        return f"{amounts['memory_percent_billionths'] / 10**9:.12g} % of the GPU"
    if "memory_bytes" in amounts:
        return figures.exact(amounts["memory_bytes"]) if amounts["memory_bytes"] else "no limit"
    return "-"


def _set_cores(amounts: dict[str, int]) -> str:
    shares = {key: _set_share(amounts[key]) for key in _SHARES if key in amounts}
    soft = shares.get("soft_cores_millipercent")
    return shares.get("cores_millipercent", "-") + (f", soft {soft}" if soft else "")


def _set_share(millipercent: int) -> str:
    return figures.share(millipercent) if millipercent else "no limit"


def _set_text(amounts: dict[str, Any]) -> str:
    parts = [] if _set_memory(amounts) == "-" else [f"memory {_set_memory(amounts)}"]
    for key, name in _SHARES.items():
        if key in amounts:
            parts.append(f"{name} {_set_share(amounts[key])}")
    parts += [f"{name} {text}" for name, text in terms.words_of(amounts).items()]
    if amounts.get("frozen"):
        parts.append("frozen")
    return ", ".join(parts) or "nothing"

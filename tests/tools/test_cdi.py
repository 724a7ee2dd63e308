"""`gpufence cdi`: what it writes is valid CDI, what it reads is judged by the specification."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpufence.cdi import cdi_spec, yaml_text
from gpufence.config import limits, sources
from gpufence.config.option_table import table

from .gpufence_command import REPO, bare, gpufence, header

OFFICIAL = json.loads(
    (Path(__file__).parent / "cdi.official.schema.json").read_text(encoding="utf-8")
)
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """Something that passes for the library on this machine, with its companion."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("libgpufence.so", "libgpufence-addpath.so"):
        (folder / name).write_bytes(header())
    return folder / "libgpufence.so"


@pytest.fixture(autouse=True)
def _limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with limits are made where the test keeps its own."""
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", tmp_path / "limits")


LIMITS = Path()


def cdi(verb: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command with a bare environment."""
    folder = ("--limits-dir", LIMITS) if verb == "generate" else ()
    return gpufence("cdi", verb, *folder, *arguments)


def generated(lib: Path, *arguments: str) -> Any:  # noqa: ANN401 - a JSON document
    """A generated document, valid by the specification's own schema and by our stricter rules."""
    done = cdi("generate", "--lib", lib, "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, OFFICIAL)
    assert cdi_spec.check(document) == []
    return document


def variables(document: Any, device: int = 0) -> dict[str, str]:  # noqa: ANN401
    """What a container with this device finds in its environment."""
    edits = [document["containerEdits"], document["devices"][device]["containerEdits"]]
    return dict(text.split("=", 1) for each in edits for text in each.get("env", []))


def mounts(document: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Mounts by their path in the container."""
    return {mount["containerPath"]: mount for mount in document["containerEdits"]["mounts"]}


def test_each_name_is_a_device_with_the_limit_that_follows_it(lib: Path) -> None:
    document = generated(
        lib, "--name", "small", "--memory", "4GiB", "--cores", "30", "--soft-cores", "60",
        "--name", "big", "--memory", "50%",
    )  # fmt: skip

    assert [device["name"] for device in document["devices"]] == ["small", "big"]
    assert variables(document, 0) == {
        "GPUFENCE_NODE_DIR": "/run/gpufence-node",
        "GPUFENCE_MEMORY_LIMIT": "4GiB",
        "GPUFENCE_CORE_LIMIT": "30",
        "GPUFENCE_CORE_SOFT_LIMIT": "60",
    }
    assert variables(document, 1) == {
        "GPUFENCE_NODE_DIR": "/run/gpufence-node",
        "GPUFENCE_MEMORY_LIMIT": "50%",
    }


def test_terms_belong_to_the_device_that_they_follow(lib: Path) -> None:
    document = generated(
        lib, "--name", "web", "--gpu", UUID, "--cores", "30", "--priority", "high",
        "--core-burst", "250ms", "--name", "batch", "--cores", "70", "--priority", "low",
        "--weight", "5", "--core-floor", "10",
    )  # fmt: skip

    assert variables(document, 0)["GPUFENCE_PRIORITY"] == "high"
    assert variables(document, 0)["GPUFENCE_CORE_BURST"] == "250ms"
    assert variables(document, 1) == {
        "GPUFENCE_NODE_DIR": "/run/gpufence-node",
        "GPUFENCE_CORE_LIMIT": "70",
        "GPUFENCE_PRIORITY": "low",
        "GPUFENCE_WEIGHT": "5",
        "GPUFENCE_CORE_FLOOR": "10",
    }


def test_a_file_says_the_same_as_the_variables(lib: Path, tmp_path: Path) -> None:
    """For processes that the engine gives no variables: `docker exec`, another user's cron."""
    document = generated(
        lib, "--name", "a", "--memory", "4GiB", "--gpu", UUID, "--cores", "1=30", "--soft-cores",
        "60", "--cores", "20", "--priority", "low", "--weight", "7", "--core-burst", "1s",
        "--core-floor", "5",
    )  # fmt: skip
    (mount,) = document["devices"][0]["containerEdits"]["mounts"]
    inside = tmp_path / "root" / "etc" / "gpufence" / "gpufence.conf"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(Path(mount["hostPath"]).read_bytes())
    given = tuple(f"{key}={text}" for key, text in variables(document).items())

    by_file = limits.read(sources.System(str(tmp_path / "root"), ())).claims
    by_variables = limits.read(sources.System("/nonexistent", given)).claims

    def amounts(claims: Any) -> list[object]:  # noqa: ANN401
        return [(each.kind, each.target, each.index, each.uuid, each.amount) for each in claims]

    assert (mount["containerPath"], mount["options"][0]) == (table()[0]["CONFIG_PATH"], "ro")
    assert Path(mount["hostPath"]).stat().st_mode & 0o777 == 0o644
    assert len(by_variables) == 4
    assert amounts(by_file) == amounts(by_variables)
    text = inside.read_text(encoding="utf-8")
    assert "node_dir = /run/gpufence-node\n" in text
    assert {line.partition(" = ")[0] for line in text.splitlines()[1:]} >= {
        "priority", "weight", "core_burst", "core_floor",
    }  # fmt: skip


def test_no_two_devices_share_a_file(lib: Path) -> None:
    first = generated(lib, "--kind", "a.io/x", "--name", "s", "--memory", "1g", "--name", "t",
                      "--memory", "2g")  # fmt: skip
    second = generated(lib, "--kind", "a.io/y", "--name", "s", "--memory", "3g")

    devices = [*first["devices"], *second["devices"]]
    paths = [device["containerEdits"]["mounts"][0]["hostPath"] for device in devices]

    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    assert [text.splitlines()[1] for text in texts] == [
        "memory_limit = 1g",
        "memory_limit = 2g",
        "memory_limit = 3g",
    ]


def test_a_limit_for_one_gpu_is_read_as_one_by_the_library(lib: Path) -> None:
    document = generated(lib, "--gpu", UUID, "--memory", "4GiB", "--cores", "1=30")
    found = variables(document)

    claims = limits.read(
        sources.System("/nonexistent", tuple(f"{key}={text}" for key, text in found.items()))
    ).claims

    # No '-' in a name: shells would not pass such a variable on.
    assert all(name.isidentifier() for name in found)
    assert [(each.target, each.amount) for each in claims] == [
        (limits.Target.UUID, 4 << 30),
        (limits.Target.ORDINAL, 30000),
    ]
    assert claims[0].uuid.hex() == UUID[4:].replace("-", "")
    assert claims[1].index == 1


def test_the_container_gets_library_preload_state_and_node_folder(lib: Path) -> None:
    found = mounts(generated(lib, "--memory", "1g", "--state", "/srv/state", "--node", "/srv/node"))

    assert {path: (mount["hostPath"], mount["options"][0]) for path, mount in found.items()} == {
        "/usr/lib/gpufence/libgpufence.so": (str(lib), "ro"),
        "/etc/ld.so.preload": (str(REPO / "deploy" / "ld.so.preload"), "ro"),
        "/run/gpufence": ("/srv/state", "rw"),
        "/run/gpufence-node": ("/srv/node", "rw"),
    }


def test_the_preload_file_names_what_is_mounted(lib: Path) -> None:
    for extra in ([], ["--add-path"]):
        found = mounts(generated(lib, "--memory", "1g", *extra))

        named = Path(found["/etc/ld.so.preload"]["hostPath"]).read_text(encoding="utf-8").split()

        assert named == sorted(path for path in found if path.endswith(".so"))


def test_folders_have_the_flags_of_other_commands_and_their_older_ones(lib: Path) -> None:
    words = ("--name", "a", "--memory", "1g")
    newer = generated(lib, *words, "--state-dir", "/srv/state", "--node-dir", "/srv/node")
    older = generated(lib, *words, "--state", "/srv/state", "--node", "/srv/node")

    assert newer == older
    assert "/srv/state" in json.dumps(newer)


def test_a_private_state_is_a_folder_in_memory_and_needs_a_newer_version(lib: Path) -> None:
    shared = generated(lib, "--memory", "1g")
    private = generated(lib, "--memory", "1g", "--private-state", "--no-node")

    assert (shared["cdiVersion"], private["cdiVersion"]) == ("0.3.0", "0.4.0")
    assert mounts(private)["/run/gpufence"]["type"] == "tmpfs"
    assert variables(private) == {"GPUFENCE_MEMORY_LIMIT": "1g"}


def test_a_name_that_begins_with_a_digit_needs_a_newer_version(lib: Path) -> None:
    assert generated(lib, "--name", "4g", "--memory", "4g")["cdiVersion"] == "0.5.0"
    assert generated(lib, "--kind", "a.b/c.d", "--memory", "4g")["cdiVersion"] == "0.6.0"


@pytest.mark.parametrize("name", ["gpufence.yaml", "gpufence.json"])
def test_the_output_is_whole_readable_by_all_and_valid(
    lib: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name

    done = cdi("generate", "--lib", lib, "--memory", "1g", "--output", path)
    verdict = cdi("validate", path)

    assert (done.returncode, done.stdout) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.read_text(encoding="utf-8")[:3] == ("---" if name.endswith("yaml") else "{\n ")
    assert (verdict.returncode, verdict.stdout) == (0, f"{path}: valid\n")
    assert [each.name for each in tmp_path.rglob(".*")] == []


def test_both_formats_say_the_same(lib: Path) -> None:
    arguments = ("--lib", lib, "--name", "a", "--memory", "1g", "--name", "b", "--cores", "5")

    as_yaml = cdi("generate", *arguments).stdout
    as_json = cdi("generate", *arguments, "--format", "json").stdout

    assert yaml_text.load(as_yaml) == json.loads(as_json)


def test_folders_that_do_not_exist_are_told(lib: Path, tmp_path: Path) -> None:
    done = cdi("generate", "--lib", lib, "--memory", "1g", "--state", tmp_path, "--no-node")
    missing = cdi("generate", "--lib", lib, "--memory", "1g", "--state", "/gone", "--no-node")

    assert done.stderr == ""
    assert "`mkdir -m 1777 /gone`. It does not exist on this machine." in missing.stderr
    assert (missing.returncode, missing.stderr.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--memory", "10GBB"], 4, "memory limit '10GBB' refused"),
        (["--cores", "101"], 4, "core limit '101' refused"),
        (["--soft-cores", "50"], 4, "no effect without a core limit"),
        (["--gpu", "x", "--memory", "1g"], 4, "neither index nor UUID"),
        ([], 2, "it has no limit"),
        (["--memory", "1g", "--weight", "5"], 2, "--weight has no effect without a core limit"),
        (["--cores", "9", "--priority", "urgent"], 4, "priority 'urgent' refused"),
        (["--cores", "9", "--weight", "2", "--mode", "mps"], 4, "--weight beside --mode mps"),
        (["--cores", "9", "--soft-cores", "20", "--mode", "mps"], 4, "--soft-cores beside"),
        (["--memory", "1g", "--mode", "mps"], 4, "there is no core limit"),
        (["--cores", "9", "--mode", "x"], 4, "mode 'x' refused"),
        (["--cores", "9", "--mode", "mps", "--mode", "mps"], 2, "given before"),
        (["--memory", "1g", "--mps-dir", "x"], 2, "--mps-dir 'x' refused"),
        (["--cores", "9", "--priority", "low", "--priority", "low"], 2, "given before"),
        (["--name", "a", "--name", "b", "--memory", "1g"], 2, "device 'a' refused"),
        (["--name", "a b", "--memory", "1g"], 2, "name 'a b' refused"),
        (["--name", "a", "--memory", "1g", "--name", "a", "--memory", "2g"], 2, "given before"),
        (["--kind", "nope", "--memory", "1g"], 2, "no '/' between"),
        (["--kind", "1x/y", "--memory", "1g"], 2, "no domain name"),
        (["--memory", "1g", "--state", "run"], 2, "no absolute path"),
        (["--memory", "1g", "--output", "/nonexistent/x.yaml"], 1, "not written"),
        (["--memory", "1g", "--limits-dir", "/proc/x"], 1, "not written"),
        (["--memory", "1g", "--limits-dir", "x"], 2, "--limits-dir 'x' refused"),
        (["--memory", "1g", "--output", "/"], 1, "not written"),
    ],
)
def test_what_cannot_be_generated_is_one_line(
    lib: Path, arguments: list[str], status: int, text: str
) -> None:
    done = cdi("generate", "--lib", lib, *arguments)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert text in done.stderr


GOOD: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "vendor.com/device",
    "annotations": {"a": "b"},
    "devices": [
        {
            "name": "0",
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/x", "type": "c", "major": 1, "permissions": "rw"}],
                "env": ["A=", "B=c=d"],
                "hooks": [{"hookName": "createContainer", "path": "/bin/x", "args": ["x"]}],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
            },
        }
    ],
}


# Path into GOOD, what is put there (None: taken away), and what the complaint says.
BAD: list[tuple[str, Any, str]] = [
    ("cdiVersion", "0.9.9", "cdiVersion '0.9.9' is none of 0.3.0, "),
    ("cdiVersion", "0.5.0", "must be at least 0.6.0"),
    ("cdiVersion", None, "the document has no cdiVersion"),
    ("kind", "vendor.com", "no '/'"),
    ("kind", "vendor_/x", "no domain name"),
    ("kind", "vendor.com/", "its class ''"),
    ("kind", "vendor.com/a/b", "its class 'a/b'"),
    ("kind", "vendor.com/" + "a" * 64, "its class"),
    ("kind", "v" * 64 + ".com/a", "no domain name"),
    ("kind", None, "has no kind"),
    ("kind", 3, "kind is no text"),
    ("devices", [], "has no devices"),
    ("devices", {}, "devices is no list"),
    ("annotations", {"a": 1}, "annotations.a is no text"),
    ("container", {}, "'container' is no key of the document"),
    ("devices/0/name", "-a", "devices[0].name '-a' is no name of letters"),
    ("devices/0/name", "a/b", "'a/b' is no name"),
    ("devices/0/name", 3, "devices[0].name is no text"),
    ("devices/0/extra", 3, "'extra' is no key of devices[0]"),
    ("devices/0/containerEdits", {}, "containerEdits is empty"),
    ("devices/0/containerEdits", {"env": [], "mounts": "null"}, "containerEdits is empty"),
    ("devices/0/containerEdits", None, "devices[0] has no containerEdits"),
    ("devices/0/containerEdits/env", ["A"], "containerEdits.env[0] 'A' is no NAME=VALUE"),
    ("devices/0/containerEdits/env", "A=1", "env is no list"),
    ("devices/0/containerEdits/mount", ["a"], "'mount' is no key of devices[0].containerEdits"),
    ("devices/0/containerEdits/mounts/0/hostPath", "", "hostPath is empty"),
    ("devices/0/containerEdits/mounts/0/options", "ro", "options is no list"),
    ("devices/0/containerEdits/deviceNodes/0/path", None, "has no path"),
    ("devices/0/containerEdits/deviceNodes/0/type", "char", "'char' is none of b, c, u, p"),
    ("devices/0/containerEdits/deviceNodes/0/permissions", "rx", "no permission of r, w and m"),
    ("devices/0/containerEdits/deviceNodes/0/major", -1, "major -1 is out of its bounds"),
    ("devices/0/containerEdits/additionalGids", [1 << 32], "additionalGids[0] 4294967296 is out"),
    ("devices/0/containerEdits/hooks/0/hookName", "start", "'start' is none of prestart, "),
    ("devices/0/containerEdits/hooks/0/path", "bin", "'bin' is no absolute path"),
]


@pytest.mark.parametrize(("path", "value", "text"), BAD)
def test_rules_of_the_specification(path: str, value: object, text: str) -> None:
    document = copy.deepcopy(GOOD)
    *way, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    place: Any = document
    for part in way:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = json.loads(json.dumps(value).replace('"null"', "null"))

    complaints = cdi_spec.check(document)

    assert len(complaints) >= 1
    assert text in " ".join(complaints)


def test_a_valid_document_passes_and_doubles_do_not() -> None:
    jsonschema.validate(GOOD, OFFICIAL)
    empty = GOOD | {"containerEdits": {"env": None, "mounts": []}}
    twice = copy.deepcopy(GOOD)
    twice["devices"].append(twice["devices"][0])

    assert cdi_spec.check(GOOD) == cdi_spec.check(empty) == []
    assert cdi_spec.check(twice) == ["device '0' stands there twice"]


@pytest.mark.parametrize(
    ("name", "content", "status", "text"),
    [
        ("a.json", b"{", 5, "no JSON"),
        ("a.json", b"[" * 100000, 5, "no JSON"),
        ("a.json", b"\xff", 5, "no UTF-8"),
        ("a.yaml", b"a: &x b", 5, "line 1 uses an anchor"),
        ("a.yaml", b"a:\n\t- b", 5, "line 2: found character that cannot start any token"),
        ("a.yaml", b"- " * 300000 + b"x", 5, "nested too deep"),
        ("a.yaml", b"", 5, "the document is no map"),
        ("a.json", b'{"containerEdits":' * 900 + b"1" + b"}" * 900, 5, "has no kind"),
        ("a.yaml", b"x" * (1 << 21), 5, "longer than"),
    ],
)
def test_a_broken_file_is_told_and_no_traceback(
    tmp_path: Path, name: str, content: bytes, status: int, text: str
) -> None:
    (tmp_path / name).write_bytes(content)

    done = cdi("validate", tmp_path / name)

    assert (done.returncode, done.stderr) == (status, "")
    assert text in done.stdout


def test_the_list_tells_limits_and_leaves_out_what_is_broken(lib: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    folder.mkdir()
    cdi("generate", "--lib", lib, "--name", "s", "--memory", "4g", "--output", folder / "b.yaml")
    (folder / "a.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (folder / "c.yaml").write_text("a", encoding="utf-8")
    nothing = GOOD | {"kind": "a.io/b", "containerEdits": {"env": None}}
    (folder / "d.json").write_text(json.dumps(nothing), encoding="utf-8")
    (folder / "notes.txt").write_text("x", encoding="utf-8")

    ours = cdi("list", "--dir", folder)
    every = cdi("list", "--dir", folder, "--all", "--json")

    assert ours.returncode == 0
    assert ours.stdout == f"gpufence.io/limit=s  GPUFENCE_MEMORY_LIMIT=4g  {folder / 'b.yaml'}\n"
    assert ours.stderr == f"gpufence: {folder / 'c.yaml'} is left out: the document is no map.\n"
    devices = json.loads(every.stdout)["devices"]
    assert [(each["device"], each["limits"]) for each in devices] == [
        ("vendor.com/device=0", {}),
        ("gpufence.io/limit=s", {"GPUFENCE_MEMORY_LIMIT": "4g"}),
        ("a.io/b=0", {}),
    ]


def test_a_missing_folder_lists_nothing(tmp_path: Path) -> None:
    gone = tmp_path / "gone"

    done = cdi("list", "--dir", gone, "--json")
    told = cdi("list", "--dir", gone)

    assert (done.returncode, json.loads(done.stdout)) == (0, {"schema": 1, "devices": []})
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr == f"gpufence: no device with a limit in {gone}\n"


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("generate", "--memory", "1g"), "PyYAML"),
        (("validate", "a.yaml"), "PyYAML"),
        (("validate", "a.json"), "jsonschema"),
        (("list", "--dir", "."), "PyYAML"),
    ],
)
def test_without_a_package_one_line_names_it(
    words: tuple[str, ...], package: str, lib: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.yaml", "a.json"):
        (tmp_path / name).write_text(json.dumps(GOOD), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    more = ("--lib", lib, "--limits", LIMITS) if words[0] == "generate" else ()

    done = bare("cdi", *words, *more)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"the Python package {package} is not installed. Run `pip install" in done.stderr


def test_json_is_written_without_any_package(lib: Path) -> None:
    words = ("generate", "--lib", lib, "--memory", "1g", "--limits", LIMITS, "--no-node")

    done = bare("cdi", *words, "--private-state", "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert cdi_spec.check(json.loads(done.stdout)) == []

"""One case: a command, a folder and the mutations of its files, all drawn from (seed, number)."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.folders import files, trees, views
from tests.hostile.folders.checks import Finding, Printed, changes, check_bug_files, check_page, check_printed, look_at
from tests.hostile.folders.child import Call, Ended, Limits, Scene, make_scene, run_child
from tests.hostile.folders.commands import ALL_FILES, COMMANDS, Command, call
from tests.hostile.folders.seeds import Seed
from tests.hostile.folders.values import Chance

SECRET = "KEYHOLE-CANARY-5d1c0f"
_PARTS = ("summary.json.part", "bandwidth.json.part", "lock", "views/user-0.view.cut", "model/item_factors.npy.part")
_PLACES = ("forge", "views", "model", "keys", "lock", "anything", "part", "name", "report.html")
_ODD_FOLDERS = (
    "run",
    "r[bold]un[/]",
    "r\x1b[31mun",
    "r\u202eun",
    "r un'\"$(id)",
    "r\nun",
    "ru\udcffn",
    "=r",
    "<img src=kh>",
)


@dataclass(slots=True)
class Result:
    number: int
    command: str
    seed: str
    words: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    code: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    printed: Printed | None = None


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """The settings that all cases share."""

    seeds: list[Seed]
    work: Path
    seed: int
    limits: Limits
    only: str | None = None
    call: Call = call

    def try_case(self, number: int, keep: bool = False) -> Result:
        """Make the folder, run the command, check what it did, and remove the folder unless `keep`."""
        chance = Chance(self.seed, number)
        command = COMMANDS[chance.weighed({name: each.weight for name, each in COMMANDS.items()})]
        if self.only is not None:
            command = COMMANDS[self.only]
        seed = self._choose_seed(command, chance)
        top = self.work / f"case-{number}"
        scene = make_scene(top, seed.folder, chance.of(_ODD_FOLDERS) if chance.one_in(25) else "run", SECRET)
        result = Result(number, command.name, seed.name)
        try:
            self._spoil(scene, command, chance, result)
            files.stay_on_loopback(scene.folder / "roster.json")
            result.argv = command.argv(chance, scene.folder)
            self._judge(scene, command, result)
        finally:
            if not keep:
                _clear(top)
        return result

    def _choose_seed(self, command: Command, chance: Chance) -> Seed:
        fit = [seed for seed in self.seeds if command.wants(seed) and (seed.usual or command.waits)]
        return chance.of(fit if not chance.one_in(12) else self.seeds)

    def _spoil(self, scene: Scene, command: Command, chance: Chance, result: Result) -> None:
        if command.name == "resume" and chance.one_in(15):
            result.words.append(_as_processes(scene.folder))
        for _ in range(chance.weighed({1: 6, 2: 3, 3: 1})):
            result.words.append(_mutate(scene, command, chance))
        if chance.one_in(3):
            home = scene.folder.parent
            places = [place for place in (scene.folder, scene.cwd, home, scene.folder / "views") if place.is_dir()]
            result.words.append(files.plant_modules(places, chance, scene.marker))

    def _judge(self, scene: Scene, command: Command, result: Result) -> None:
        watched = [scene.outside, scene.cwd, scene.folder.parent]
        before = [look_at(place) for place in watched]
        ended = run_child(self.call, command, result.argv, scene, self.limits)
        result.code, result.seconds, result.megabytes = ended.printed.code, ended.seconds, ended.megabytes
        result.printed = ended.printed
        result.findings += _without_echo(ended, check_bug_files(scene.tmp))
        after = [look_at(place) for place in watched]
        for name in changes(before[0], after[0]):
            kind = "import" if name == "marker" else "write"
            words = scene.marker.read_text("utf-8") if name == "marker" else ""
            result.findings.append(Finding(kind, f"outside/{name} is another now {words}".strip()))
        made = [name for name in changes(before[1], after[1]) if name.split("/")[0] not in ("made", "runs")]
        own = [f"{scene.folder.name}/{name}" for name in command.writes]
        made += [name for name in changes(before[2], after[2]) if "*" not in command.writes and name not in own]
        result.findings += [Finding("write", f"{name} is another now") for name in made]
        if command.name == "report":
            result.findings += check_page(scene.folder, SECRET)


def _without_echo(ended: Ended, bugs: list[Finding]) -> list[Finding]:
    """Collect the findings of a child; after a bug or a timeout, leave out its exit code and its silence."""
    found = check_printed(ended.printed, SECRET)
    if bugs or any(each.kind == "timeout" for each in ended.findings):
        found = [each for each in found if not each.kind.startswith("exit ") and each.kind != "silent"]
    return [*ended.findings, *bugs, *found]


def _mutate(scene: Scene, command: Command, chance: Chance) -> str:
    """Apply one mutation to a file that `command` reads, and describe it; only note one that is not possible."""
    wanted = chance.weighed(command.reads)
    plain = _is_plain(scene.folder)
    target = _target(scene.folder, wanted, chance)
    try:
        if wanted == "forge" and plain:
            return f"forge: {views.forge(scene.folder, chance)}"
        if not plain or wanted in _PLACES or chance.one_in(5):
            words = files.mutate_place(target, chance, scene.outside)
        else:
            words = _content(target, scene, chance)
    except Exception as error:  # an earlier mutation has left nothing that could be changed in this way
        words = f"not possible ({type(error).__name__})"
    return f"{os.path.relpath(target, scene.folder)}: {words}"


def _as_processes(folder: Path) -> str:
    """Set the transport to tcp: the run goes on with real processes, which import everything themselves."""
    path = folder / "run.toml"
    path.write_text(path.read_text("utf-8").replace('"inprocess"', '"tcp"'), "utf-8")
    return "run.toml: transport = tcp"


def _is_plain(folder: Path) -> bool:
    """Tell whether `folder` has only folders and regular files below 1 MiB, so that they can be read here."""
    return all(kind in (stat.S_IFREG, stat.S_IFDIR) and size < 1 << 20 for kind, size, _ in look_at(folder).values())


def _target(folder: Path, wanted: str, chance: Chance) -> Path:
    if wanted.endswith("/*"):
        inside = sorted((folder / wanted[:-2]).glob("*.*"))
        often = [each for each in inside if each.stem in ("recommender", "third_party", "user-0", "user-1")]
        return chance.of(often if often and not chance.one_in(4) else inside) if inside else folder / wanted[:-2]
    if wanted == "part":
        return folder / chance.of(_PARTS)
    return folder / (chance.of(ALL_FILES) if wanted in ("anything", "name", "forge") else wanted)


def _content(target: Path, scene: Scene, chance: Chance) -> str:
    if target.suffix == ".view":
        return views.mutate_view(target, scene.folder, chance)
    if target.suffix == ".npy":
        return files.mutate_model(target, chance, scene.marker)
    return trees.mutate_text(target, chance)


def _clear(top: Path) -> None:
    shutil.rmtree(top, ignore_errors=True)

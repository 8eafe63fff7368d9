"""Guards against what a folder from another person may hold: a part of the list in `guards.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    what: str
    file: str
    guard: str  # as it stands in the file, once
    without: str
    tests: str  # arguments of pytest


OF_FOLDERS = [
    Guard(
        "trust: what a file names is not imported",
        "sim/folder/folder.py",
        "            scheme = find_scheme(document[\"run\"][\"scheme\"])\n",
        "            load_scheme(document[\"run\"][\"scheme\"])\n"
        "            scheme = find_scheme(document[\"run\"][\"scheme\"])\n",
        "tests/hostile/test_trust.py -k what_a_file_names",
    ),
    Guard(
        "trust: a configuration file is not enough",
        "sim/cli/flags.py",
        "    if \"scheme\" in given or trusted:",
        "    if True:",
        "tests/hostile/test_trust.py -k what_a_file_names",
    ),
    Guard(
        "trust: a roster that was read is not enough",
        "sim/run/key_files.py",
        "_read(path, RosterFile), trusted)",
        "_read(path, RosterFile))",
        "tests/hostile/test_trust.py -k what_a_file_names",
    ),
    Guard(
        "trust: another scheme than the run asks for is refused",
        "sim/folder/folder.py",
        "    if scheme not in (None, named):",
        "    if False:",
        "tests/hostile/test_trust.py -k does_not_ask_for",
    ),
    Guard(
        "trust: an installed module comes first",
        "actors/own_scheme.py",
        "    if top in sys.modules or importlib.util.find_spec(top) is not None:",
        "    if top in sys.modules:",
        "tests/hostile/test_trust.py -k installed_module",
    ),
    Guard(
        "trust: the current folder is on nobody's path",
        "actors/own_scheme.py",
        "    spec = importlib.machinery.PathFinder",
        "    sys.path.append(os.getcwd())\n    spec = importlib.machinery.PathFinder",
        "tests/hostile/test_trust.py -k only_the_module",
    ),
    Guard(
        "trust: python -m sim forgets the current folder",
        "sim/__main__.py",
        "    del sys.path[0]\n",
        "    pass\n",
        "tests/hostile/test_trust.py -k 'reading and python'",
    ),
    Guard(
        "trust: worker processes do not look into the current folder",
        "sim/drivers/workers.py",
        "    os.environ[SAFE_PATH] = \"1\"\n",
        "    os.environ[SAFE_PATH] = \"\"\n",
        "tests/hostile/test_trust.py -k notebook_do_not_import",
    ),
    Guard(
        "trust: worker processes know what is trusted",
        "sim/drivers/workers.py",
        "(own_schemes(),)",
        "((),)",
        "tests/hostile/test_trust.py -k audited_by_worker",
    ),
    Guard(
        "untrusted: only regular files are opened",
        "sim/foreign/untrusted.py",
        "    if not stat.S_ISREG(os.fstat(file).st_mode):",
        "    if False:",
        "tests/hostile/test_untrusted.py -k 'regular or pipe'",
    ),
    Guard(
        "untrusted: opening a FIFO does not wait",
        "sim/foreign/untrusted.py",
        " | os.O_NONBLOCK",
        "",
        "tests/hostile/test_untrusted.py -k 'fifo_hangs and run.toml and verify'",
    ),
    Guard(
        "untrusted: no link out of the folder is followed",
        "sim/foreign/untrusted.py",
        "    if leads_out(folder, name):",
        "    if False:",
        "tests/hostile/test_untrusted.py -k 'link or links'",
    ),
    Guard(
        "untrusted: nothing is written into a folder with links",
        "sim/folder/folder.py",
        "    untrusted.refuse_links(folder)\n",
        "",
        "tests/hostile/test_untrusted.py -k written_through",
    ),
    Guard(
        "untrusted: a record is held against the file before it is read",
        "protocol/party/view.py",
        "    if not size.holds(length + HASH_BYTES):",
        "    if False:",
        "tests/hostile/test_untrusted.py -k held_against_what_is_left",
    ),
    Guard(
        "untrusted: an event has an end",
        "protocol/party/view.py",
        "    if is_event and len(body) > MOST_EVENT_BYTES:",
        "    if False:",
        "tests/hostile/test_untrusted.py -k an_event_may_not",
    ),
    Guard(
        "untrusted: files have an end",
        "sim/foreign/untrusted.py",
        "    data = stream.read(most + 1)\n    if len(data) > most:",
        "    data = stream.read(1 << 20)\n    if False:",
        "tests/hostile/test_untrusted.py -k endless",
    ),
    Guard(
        "untrusted: documents are not nested deeply",
        "sim/foreign/untrusted.py",
        "        if not level:\n            return\n    raise ValueError",
        "        if not level:\n            return\n    return\n    raise ValueError",
        "tests/hostile/test_untrusted.py -k 'nested or toml'",
    ),
    Guard(
        "untrusted: an array is as long as its file",
        "sim/foreign/untrusted.py",
        " or stream.tell() + math.prod(shape) * dtype.itemsize != size:",
        ":",
        "tests/hostile/test_untrusted.py -k held_against_the_file",
    ),
    Guard(
        "untrusted: a summary has its form",
        "sim/folder/folder.py",
        "    untrusted.fit(summary, Summary)\n",
        "",
        "tests/hostile/test_untrusted.py -k names_the_place",
    ),
    Guard(
        "untrusted: a key file has its form",
        "sim/run/key_files.py",
        "    untrusted.fit(document, form)\n",
        "",
        "tests/hostile/test_secrets.py -k says_where",
    ),
    Guard(
        "untrusted: parameters are in range",
        "sim/folder/folder.py",
        "        check_params(params)\n        return document, Card",
        "        return document, Card",
        "tests/hostile/test_untrusted.py -k out_of_range",
    ),
    Guard(
        "untrusted: what is printed is visible",
        "sim/console/console.py",
        "out.push_render_hook(_Visible())\n",
        "",
        "tests/hostile/test_untrusted.py -k do_not_reach_the_terminal",
    ),
    Guard(
        "untrusted: JSON has no controls",
        "sim/foreign/plain_text.py",
        "    return _escaped(json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False))",
        "    return json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False)",
        "tests/hostile/test_untrusted.py -k terminal",
    ),
    Guard(
        "untrusted: a page has no controls",
        "sim/report/section.py",
        "Markup(visible(environment().get_template(template).render(**given)))",
        "Markup(environment().get_template(template).render(**given))",
        "tests/hostile/test_untrusted.py -k on_a_page",
    ),
    Guard(
        "untrusted: cells are no formulas",
        "sim/foreign/plain_text.py",
        "    return f\"'{text}\" if value.startswith(_FORMULA) else text",
        "    return text",
        "tests/hostile/test_untrusted.py -k 'formulas or terminal'",
    ),
    Guard(
        "untrusted: too much memory is a sentence",
        "sim/cli/endings.py",
        "        except (MemoryError, RecursionError) as error:",
        "        except RecursionError as error:",
        "tests/hostile/test_untrusted.py -k is_a_sentence",
    ),
]

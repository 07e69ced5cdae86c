"""`travois inspect`: the real program, looked at with a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.core.told import reply, user
from tests.e2e.program import Program
from tests.inspector.logs import HEAD, compacted, make, talk, turn, write
from travois.core.content import Call, Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Decided,
    Hooked,
    Opened,
    Result,
    Spawned,
)
from travois.core.models import Usage
from travois.core.view import View, project_view
from travois.files.installation import extra_command
from travois.inspector.story import REQUEST_LAYERS, SessionStory
from travois.providers.encoder import RequestEncoder
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog, read_history
from travois.tools.diff import compare_texts

CORPUS = Path(__file__).parents[3] / "shared" / "lab" / "security" / "injections.jsonl"
EVIL = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'></svg>",
    "<a href='javascript:window.hacked = 1'>click</a> javascript:window.hacked=1",
    "\x1b[2J\x1b]52;c;aGk=\x07 \u202egnp.exe\u202c \u200b\x00 {{constructor}} ${window.hacked=1}",
    "</pre></article><iframe src='https://attacker.invalid'></iframe>",
)


def fetch(name: str) -> bytes:
    raise KeyError(name)


def until(found: Callable[[], Any], what: str) -> Any:
    end = monotonic() + 180
    while not (value := found()):
        assert monotonic() < end, what
        sleep(0.05)
    return value


@pytest.fixture
def home(program: Program) -> TravoisHome:
    return TravoisHome(program.home).prepare()


@pytest.fixture
def inspect(program: Program) -> Iterator[Callable[..., str]]:
    """Start the program and give the address that it prints."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> str:
        running.append(program.start("inspect", "--no-open", *words))
        assert running[-1].stdout is not None
        address, ends = (running[-1].stdout.readline() for _ in range(2))
        assert ends == b"Press Ctrl-C to stop.\n"
        return address.decode().strip()

    yield start
    for child in running:
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
        assert (child.returncode, out, err) == (130, b"", b"")


class Page:
    """A browser, by what a person does with it and sees in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(url)
        until(lambda: self.all("h1"), "a heading")

    def run(self, script: str, *args: object) -> Any:
        return self.driver.execute_script(script, *args)

    def all(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return self.run(script, selector)

    def wait(self, selector: str, text: str) -> None:
        until(lambda: any(text in one for one in self.all(selector)), f"{text} in {selector}")

    def press(self, key: str) -> None:
        self.driver.switch_to.active_element.send_keys(key)

    def click(self, selector: str) -> None:
        until(lambda: self.all(selector), selector)
        self.run("document.querySelector(arguments[0]).click()", selector)

    @property
    def figures(self) -> dict[str, str]:
        return dict(zip(self.all(".figures dt"), self.all(".figures dd"), strict=True))

    def complaints(self) -> list[str]:
        return [one["message"] for one in self.driver.get_log("browser")]

    def asked(self) -> list[str]:
        """The addresses of all requests that the browser made over a network."""
        told = [json.loads(one["message"])["message"] for one in self.driver.get_log("performance")]
        sent = [one["params"] for one in told if one["method"] == "Network.requestWillBeSent"]
        urls = [one["request"]["url"] for one in sent]
        return [url for url in urls if not url.startswith(("about:", "chrome", "data:"))]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    folder = tmp_path_factory.mktemp("browser")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.add_argument("--window-size=1280,1000")
    options.add_argument(f"--user-data-dir={folder}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    page = Page(browser)
    page.complaints()
    page.asked()
    yield page
    assert not re.search(r"\[object|undefined|NaN", page.run("return document.body.innerText"))
    assert page.complaints() == []
    assert {re.sub(r":\d+/.*", "", url) for url in page.asked()} == {"http://127.0.0.1"}
    browser.get("about:blank")


def story(home: TravoisHome, session: str) -> SessionStory:
    return SessionStory(read_history(home.session_folder("p", session), []))


def test_a_session_opens_with_its_plots_which_sum_to_the_window_in_use(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), *talk(6), compacted(4, 32), *turn(6))
    page.open(inspect("s1"))
    page.press("2")
    last = story(home, "s1").steps[-1]
    page.wait("#detail h2", f"Request {last.index + 1} of 14")
    assert page.figures["Requests"] == "14"
    layers = page.run(
        "return [...document.querySelectorAll('path.layer')].map(p => p.dataset.layer)"
    )
    assert layers == [*REQUEST_LAYERS, "read", "write", "input"]
    shown = dict(
        re.fullmatch(r"(\w+) ([\d,]+)", one).groups()  # type: ignore[union-attr]
        for one in page.all("#legend li")
        if one != "·"
    )
    sizes = {name: int(shown.get(name, "0").replace(",", "")) for name in REQUEST_LAYERS}
    assert tuple(sizes.values()) == last.sizes
    assert sum(sizes.values()) == last.usage.prompt
    heights = page.run(
        "return [...document.querySelectorAll('path.layer')].slice(0, arguments[0])"
        ".map(path => path.getAttribute('d').split('M').at(-1))",
        len(REQUEST_LAYERS),
    )
    tops = [re.match(r"([\d.]+) .*?v([\d.]+)", one) for one in heights]
    right = max(float(one[1]) for one in tops if one)
    total = sum(float(one[2]) for one in tops if one and float(one[1]) == right)
    most = max(step.tokens for step in story(home, "s1").steps)
    assert total == pytest.approx(160 * last.tokens / most, abs=0.5)
    assert page.run("return document.querySelectorAll('line.cut').length") == 1


def edited() -> tuple[AnyFact, ...]:
    """A turn that edits a file and runs a command that fails."""
    patch = compare_texts("cart.py", "import os\nsize = 1\n", "import os\nsize = 2\n")
    edit = Call("e1", "Edit", '{"file_path":"cart.py","old_string":"1","new_string":"2"}')
    run = Call("b1", "Bash", '{"command":"pytest -q"}')
    output = "\n".join(f"line {number}" for number in range(20))
    return (
        user("Make it **two**."),
        Assistant((Text("I make it `two`."), edit, run), "calls", Usage(input=9, output=1)),
        Result("e1", (Text("Edited."),), detail=patch.json()),
        Result("b1", (Text(output),), error=True, lines=20),
        reply("Done."),
    )


def test_the_first_view_is_the_conversation_with_results_and_diffs(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), HEAD, *edited())
    page.open(inspect("s1"))
    page.wait(".block.prompt", "Make it **two**.")
    assert page.all(".block.answer .words") == ["I make it two.", "Done."]
    assert page.all(".block.answer code") == ["two"]
    rows = page.all(".diff tr")
    assert rows == ["11 import os", "2-size = 1", "2+size = 2"]
    assert page.all(".diff mark") == ["1", "2"]
    assert page.all(".block.call.failed pre")[0].split("\n") == [f"line {n}" for n in range(14, 20)]
    page.click(".block.call.failed button")
    page.wait(".block.call.failed pre", "line 0\nline 1")
    page.click(".buttons button:nth-child(3)")
    until(lambda: len(page.all(".block")) == 1, "the calls of one tool")
    assert page.all(".block header b") == [page.all("[aria-pressed=true]")[0].split()[0]]


def test_answers_have_their_tables_and_code_and_a_patch_its_files(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    patch = "*** Begin Patch\n*** Add File: new.py\n+x = 1\n*** End Patch"
    table, code = "| name | size |\n|---|---|\n| `a` | 1 |", "```python\nx = '|1|'\n```"
    answer = f"## Sizes\n\n{table}\n\n{code}\nThat is all."
    call = Call("p1", "ApplyPatch", json.dumps({"input": patch}))
    make(
        home.session_folder("p", "s1"),
        HEAD,
        user("go"),
        Assistant((call,), "calls", Usage(input=9, output=1)),
        Result("p1", (Text("Done."),)),
        reply(answer),
    )
    page.open(inspect("s1"))
    page.wait(".block.answer", "That is all.")
    assert page.all(".block.answer b")[1] == "Sizes"
    assert page.all(".block.answer td") == ["name", "size", "a", "1"]
    assert page.all(".block.answer pre") == ["x = '|1|'"]
    assert page.all(".block.call code") == ["new.py"]


def test_a_link_with_an_entry_shows_that_place(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), *talk(300))
    entries = list(story(home, "s1").entries)
    wanted = next(e for e in entries if "question 20" in str(e.fact))
    page.open(f"{inspect('s1')}&entry={wanted.seq}")
    page.wait(".block.linked", "question 20")
    page.click("#panel > button")
    page.wait(".block.prompt", "question 0")


def test_the_tools_keep_their_size_while_the_conversation_grows(home: TravoisHome) -> None:
    make(home.session_folder("p", "s1"), *talk(4))
    steps, at = story(home, "s1").steps, REQUEST_LAYERS.index("tools")
    assert len({step.sizes[at] for step in steps}) == 1
    assert [sum(step.sizes) for step in steps] == [step.tokens for step in steps]
    assert [step.tokens for step in steps] == [step.usage.prompt for step in steps]


def test_stepping_through_requests_shows_the_bytes_that_the_model_saw(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), *talk(3), compacted(4, 22), *turn(3))
    page.open(inspect("s1"))
    page.press("2")
    found = story(home, "s1")
    page.wait("#detail h2", "Request 8 of 8")
    for key, index in (("k", 6), ("k", 5), ("j", 6), ("k", 5), ("k", 4)):
        page.press(key)
        page.wait("#detail h2", f"Request {index + 1} of 8")
        assert page.all(".proof") == ["✓ Rebuilt from the log: byte for byte what was sent."]
        page.click("button[data-way=bytes]")
        until(lambda: page.all("#bytes"), "the bytes")
        start = int(page.run("return document.getElementById('bytes').dataset.start"))
        sent = next(n for n, e in enumerate(found.entries) if e.seq == found.steps[index].entry)
        body = RequestEncoder(fetch).build_request(project_view(found.entries[:sent])).body
        moved = ["Prefix changed by compaction "] if index == 6 else []
        assert page.all("#detail > .moved") == moved
        assert page.all("#bytes") == [body[start:].decode()]
    page.click("button[data-way=head]")
    page.wait("#seen pre", HEAD.system)
    page.click("button[data-way=messages]")
    items = page.all("#seen .item.fresh pre")
    assert items == ["answer 1", "question 2"]
    page.click("#seen > button")
    page.wait("#seen .item", "question 0")


def test_a_compaction_shows_what_went_and_what_stands_for_it(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    kept = home.session_folder("p", "s1") / "part.txt"
    make(home.session_folder("p", "s1"), *talk(3), compacted(4, 22, str(kept)), *turn(3, cold=True))
    kept.write_text("what was <b>set aside</b>")
    page.open(inspect("s1"))
    page.press("4")
    page.wait("#diff h2", "Compaction 1")
    assert page.all("#went .item pre")[0] == "question 0"
    assert len(page.all("#went .item")) == 8
    assert page.all("#stands pre")[0].endswith("The user asked question 0.")
    page.click("#diff li button")
    page.wait("#diff li pre", "what was <b>set aside</b>")
    page.press("3")
    page.wait("#panel td", "compaction")
    page.press("5")
    page.wait("#panel td", "you said so")
    page.wait("#panel td", "check.sh: ok")


def test_a_search_leads_to_the_request_that_brought_the_words(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), *talk(4))
    page.open(inspect("s1"))
    page.press("/")
    page.press("needle2\n")
    page.wait("#panel caption", "1 text with “needle2”")
    assert page.all("#panel mark") == ["needle2"]
    page.click("#panel tbody tr")
    page.wait("#detail h2", "Request 6 of 8")
    page.wait("#seen .item.fresh", "needle2 needle2")


def test_sessions_are_listed_filtered_and_opened(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    for number in range(30):
        make(
            home.session_folder("p", f"s{number}"),
            user(f"build the {'bridge' if number == 7 else 'boat'}"),
        )
    page.open(inspect())
    page.wait("main p", "30 of 30.")
    page.press("/")
    page.press("bridge")
    page.wait("main p", "1 of 30.")
    page.click("tbody tr")
    page.wait("h1", "build the bridge")
    page.wait("main", "No request was sent in this session yet.")


def test_what_is_added_to_a_live_session_appears_without_a_reload(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    make(home.session_folder("p", "s1"), *talk(2))
    with SessionLog.open(home.session_folder("p", "s1")) as log:
        view = project_view(log.read())
        log.append(Changed("name", "the live one"))
        page.open(inspect("s1"))
        page.press("2")
        page.wait("#live", "live")
        page.wait("#detail h2", "Request 4 of 4")
        page.run("window.same = true")
        view = write(log, turn(2), view=view)
        page.wait("#detail h2", "Request 6 of 6")
        page.press("k")
        page.wait("#detail h2", "Request 5 of 6")
        write(log, turn(3), view=view)
        until(lambda: page.figures["Requests"] == "8", "eight requests")
        assert page.all("#detail h2") == ["Request 5 of 6 · turn 3"], "who looks back is left there"
        assert page.run("return window.same") is True


def agents(home: TravoisHome) -> None:
    folder = home.session_folder("p", "s1")
    make(folder, *turn(0), Spawned("a1", "explore", "look for the bridge", "call-0"))
    make(folder / "agents" / "a1", *talk(3), Spawned("a2", "explore", "deeper", "call-0"))
    make(folder / "agents" / "a1" / "agents" / "a2", *talk(1))


def test_agents_are_a_tree_that_leads_to_their_own_logs(
    home: TravoisHome, inspect: Callable[..., str], page: Page
) -> None:
    agents(home)
    page.open(inspect("s1"))
    page.press("6")
    page.wait("#panel td", "look for the bridge")
    assert [one.strip("\u2003\u2514 ") for one in page.all("#panel td:first-child")] == ["a1", "a2"]
    page.click("#panel tbody tr")
    page.wait("h1", "Agent a1")
    page.press("2")
    page.wait("#detail h2", "Request 6 of 6")
    page.press("\ue00c")
    page.wait("#panel caption", "Agents, each below the one that started it")


def poisoned(home: TravoisHome, texts: list[str]) -> None:
    """A log in which everything that can be text is hostile."""
    folder = home.session_folder("p", "s1")
    with SessionLog.create(folder, Opened("s1", EVIL[0], EVIL[1], "0")) as log:
        view = write(log, (HEAD, user(EVIL[1])), view=View())
        for number, text in enumerate(texts):
            call = Call(f"c{number}{EVIL[0]}", EVIL[1], json.dumps({"a": text}))
            facts = (
                Assistant((Text(text), call), "calls", Usage(read=9, output=1), model=EVIL[2]),
                Decided(call.id, "deny", text, by="rule"),
                Hooked(EVIL[0], text, EVIL[1], call=call.id),
                Result(call.id, (Text(text),), error=True),
            )
            view = write(log, facts, view=view)
        write(log, (reply("end"), Changed("name", EVIL[0]), user("x")), view=view)
        log.append(Spawned("a1", EVIL[0], EVIL[1], "c0"))
    make(folder / "agents" / "a1", Changed("name", EVIL[2]), *turn(0))


@pytest.mark.parametrize("source", ["ours", "corpus"])
def test_nothing_that_a_log_holds_is_ever_more_than_text(
    home: TravoisHome, inspect: Callable[..., str], page: Page, source: str
) -> None:
    if source == "corpus" and not CORPUS.is_file():
        pytest.skip("the injections are not beside this checkout")
    lines = CORPUS.read_text("utf-8").splitlines() if source == "corpus" else []
    rows = [json.loads(line) for line in lines]
    poisoned(home, [row.get("payload") or json.dumps(row) for row in rows] or [*EVIL])
    page.open(inspect("s1"))
    page.press("2")
    page.wait("#detail h2", "Request")
    page.click("#seen > button")
    until(lambda: len(page.all("#seen .item")) > 3, "earlier items")
    for key, what in (("5", "td"), ("6", "td"), ("1", ".block"), ("2", "#detail h2")):
        page.press(key)
        until(lambda what=what: page.all(f"#panel {what}"), what)
        assert page.run("return window.hacked") is None
        assert page.all("main :is(script, img, iframe, object, embed, link, style, form)") == []
        links = page.run("return [...document.links].map(a => a.getAttribute('href'))")
        assert all(link.startswith("#") for link in links)
    assert page.all("h1") == [EVIL[0]]
    shown = page.run("return document.body.innerText")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", shown)
    page.press("\ue00c")
    page.wait("tbody td", EVIL[0])


STICKS_OUT = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"


@pytest.mark.parametrize("width", [420, 800, 1280])
def test_nothing_sticks_out_at_the_sides(
    home: TravoisHome, inspect: Callable[..., str], page: Page, width: int
) -> None:
    agents(home)
    with SessionLog.open(home.session_folder("p", "s1")) as log:
        view = project_view(log.read())
        write(log, (*turn(1), compacted(4, 12), user("x" * 900)), view=view)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.open(inspect("s1"))
    for key, what in zip(
        "1234562",
        (".block", "h2", "caption", "h2", "caption", "caption", "h2"),
        strict=True,
    ):
        page.press(key)
        until(lambda what=what: page.all(f"#panel {what}"), what)
        assert page.run(STICKS_OUT) == 0, key
    page.press("\ue00c")
    page.wait("h1", "Sessions")
    assert page.run(STICKS_OUT) == 0
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_same_is_told_as_json(home: TravoisHome, program: Program) -> None:
    make(home.session_folder("p", "s1"), *talk(2))
    done = program.run("inspect", "s1", "--json")
    assert (done.code, done.err) == (0, "")
    listed, told = json.loads(done.out)
    assert (listed["title"], listed["live"], told["layers"]) == (
        "question 0",
        False,
        [*REQUEST_LAYERS],
    )
    assert [sum(step["sizes"]) for step in told["steps"]] == [1000, 1800, 1900, 2700]
    assert json.loads(program.run("inspect", "--json").out)[0]["summary"]["id"] == "s1"


def test_without_its_packages_it_says_what_to_install(program: Program, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "starlette.py").write_text("raise ImportError('no', name='starlette')")
    program.extra["PYTHONPATH"] = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    done = program.run("inspect")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "travois: The page needs packages that are not installed: starlette is missing\n"
        f"  {extra_command('web')}\n"
    )

"""Following a command line as the shell would: where it stands, what its variables are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.permissions.access import Access
from travois.permissions.shell import parse
from travois.permissions.shell.parse import OPEN, WORDS, Reading, Unclear, raw, read
from travois.permissions.shell.place import Place, Start
from travois.permissions.shell.plan import Step, Word, assignable, under
from travois.permissions.shell.programs import study
from travois.permissions.shell.state import Ends, State, merged, opening, redirected
from travois.permissions.shell.work import (
    ACCESS_UNITS,
    MAX_DEPTH,
    MAX_PARSED_CHARS,
    REDIRECT_UNITS,
    STEP_UNITS,
    Work,
)

if TYPE_CHECKING:
    from tree_sitter import Node

SEPARATORS = frozenset((";", "&", "\n", ";;"))
BARE = frozenset(("list", "pipeline"))
"""Statements without brackets, which cannot be one part of a pipeline."""
ROUNDS = 4
CHOICES = 16


class Walker:
    """Gathers the steps of one text; what is not understood is noted and looked through."""

    def __init__(self, text: str, start: Start, work: Work, *, depth: int = 0) -> None:
        self.source = text.encode("utf-8", "replace")
        self.start = start
        self.work = work
        self.depth = depth
        self.heredocs: set[int] = set()
        """Where the operators of here-documents are that were understood."""
        self.steps: list[Step] = []
        self.unclear = ""
        self.assigned: list[str] = []

    def run(self) -> None:
        """Follow the whole text."""
        root = parse.parse(self.source)
        if root.has_error:
            self.refuse("it could not be parsed as shell syntax")
        known = {"HOME": Word(self.start.home)} if self.start.home else {}
        state = State((self.start.cwd,), known)
        try:
            self.sequence(root, state, inside=False)
        except Unclear as unclear:
            self.refuse(str(unclear))
            self.look_through(root, state)

    def refuse(self, why: str) -> None:
        """Note the first reason why the text could not be fully analyzed."""
        self.unclear = self.unclear or why

    def statement(self, node: Node, state: State) -> Ends:
        """Follow one statement; whatever cannot be followed is only looked through."""
        self.depth += 1
        self.work.spend(1 + node.child_count)
        try:
            if self.depth > MAX_DEPTH:
                raise Unclear("it is nested too deeply")
            follow = STATEMENTS.get(node.type)
            if follow is None:
                raise Unclear(f"{node.type.replace('_', ' ')} is not supported")
            return follow(self, node, state)
        except Unclear as unclear:
            self.refuse(str(unclear))
            if self.depth <= MAX_DEPTH:
                self.look_through(node, state)
            return Ends(state, state)
        finally:
            self.depth -= 1

    def look_through(self, node: Node, state: State) -> None:
        """Find the commands inside something that is not followed."""
        waiting = node.children[::-1]
        while waiting:
            self.work.spend()
            child = waiting.pop()
            if child.type in STATEMENTS:
                self.statement(child, state)
            else:
                waiting += reversed(child.children)

    def sequence(self, node: Node, state: State, *, inside: bool = True) -> Ends:
        """Follow statements one after the other; the first and last child may be brackets."""
        self.work.spend(node.child_count)
        children = parse.tiled(node, self.source, lines=True)
        return self.each(children[1:-1] if inside else children, state)

    def each(self, nodes: Iterable[Node], state: State) -> Ends:
        """Follow these statements, whatever parts them; what goes aside changes nothing here."""
        before = ends = Ends(state, state)
        for node in nodes:
            if node.type in SEPARATORS or node.type == "comment":
                ends = before if node.type == "&" else ends
                continue
            before = ends
            if not node.is_named:
                raise Unclear(f"{node.type!r} is in the place of a command")
            ends = self.statement(node, ends.either)
        return ends

    def exactly(self, node: Node, count: int) -> list[Node]:
        """Return the children of a node, if they are as many as they should be."""
        children = parse.tiled(node, self.source, lines=True)
        if len(children) != count:
            raise Unclear(f"{node.type.replace('_', ' ')} could not be parsed")
        return children

    def reading(self, state: State) -> Reading:
        """Return the context for reading words in this state."""
        variables = state.variables
        self.work.spend(1 + len(variables) // 8)
        if len(state.cwds) == 1 and "PWD" not in variables:
            variables = {**variables, "PWD": Word(state.cwds[0])}
        follow = partial(self.substitution, state=state)
        return Reading(self.source, variables, self.start.home, follow, self.work)

    def substitution(self, node: Node, *, state: State) -> None:
        """Follow what runs inside `$( )`, backticks or `<( )`."""
        if node.type == "process_substitution" and not raw(node, self.source).startswith("<("):
            self.refuse("it pipes output into a process substitution")
        # The grammar also opens them by "$`", which to the shell is a dollar sign and a backtick.
        if node.children[0].type.endswith("`") and "\\" in raw(node, self.source):
            self.refuse("backslashes inside backticks are ambiguous")
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise Unclear("it is nested too deeply")
            self.sequence(node, state)
        except Unclear as unclear:
            self.refuse(str(unclear))
        finally:
            self.depth -= 1

    def place(self, state: State) -> Place:
        """Return where the next program runs."""
        return Place(state.cwds, self.start, self.script)

    def script(self, text: str) -> None:
        """Follow the script that another shell runs."""
        self.work.spend(len(text) // 4)
        inner = Walker(text, self.start, self.work, depth=self.depth + 1)
        try:
            if self.depth < MAX_DEPTH and len(text) <= MAX_PARSED_CHARS:
                inner.run()
            else:
                inner.refuse("a nested shell command is too complex to analyze")
        finally:
            self.steps += inner.steps
            self.assigned += inner.assigned
            self.refuse(inner.unclear)

    def command(self, node: Node, state: State) -> Ends:
        """Return a program with its words, assignments and redirections."""
        self.work.spend(STEP_UNITS + 4 * node.child_count + (node.end_byte - node.start_byte) // 4)
        argv: list[Word] = []
        accesses: list[Access] = []
        given: list[tuple[str, Word]] = []
        at = self.reading(state)
        for child in parse.parted(node, self.source):
            match child.type:
                case "command_name":
                    argv += read(child.children[0], at)
                case "variable_assignment":
                    given.append(self.assignment(child, state))
                case kind if kind in WORDS:
                    argv += read(child, at)
                case _:
                    accesses += redirected(child, at, cwds=state.cwds)
        step = study(tuple(argv), self.place(state))
        self.work.spend(ACCESS_UNITS * (len(step.accesses) + len(accesses)))
        self.steps.append(self.finished(step, node, given=given, accesses=accesses))
        return self.after(step, state)

    def finished(
        self,
        step: Step,
        node: Node,
        *,
        given: list[tuple[str, Word]],
        accesses: list[Access],
    ) -> Step:
        """Return the step with what stands around the program's own words."""
        texts = (*step.texts, raw(node, self.source))
        edits = step.edits and not any(access.kind == "write" for access in accesses)
        step = replace(step, texts=texts, accesses=(*step.accesses, *accesses), edits=edits)
        return under(step, given)

    def after(self, step: Step, state: State) -> Ends:
        """Return the state after a builtin that changes it."""
        words = [word.value for word in step.argv] or [None]
        if words[0] == "cd" and step.needs == "nothing":
            moved = tuple(
                dict.fromkeys(access.target for access in step.accesses[: len(state.cwds)])
            )
            return Ends(replace(state, cwds=moved), state)
        if words[0] == "read" and step.needs == "nothing":
            names = [word for word in words[1:] if word and not word.startswith("-")]
            state = replace(state, variables={**state.variables, **dict.fromkeys(names, OPEN)})
            self.assigned += names
        return Ends(state, state)

    def assignment(self, node: Node, state: State) -> tuple[str, Word]:
        """Return the name and value of `NAME=value`."""
        children = parse.tiled(node, self.source)
        kinds = [child.type for child in children]
        if kinds[:2] != ["variable_name", "="] or len(kinds) > 3:
            raise Unclear("it sets an array element or appends to a variable")
        name = raw(children[0], self.source)
        if len(kinds) == 2:
            return name, Word("")
        if kinds[2] not in WORDS:
            raise Unclear("it sets an array")
        words = read(children[2], self.reading(state))
        if len(words) != 1 or words[0].kind == "open":
            return name, OPEN
        return name, Word(words[0].text)

    def assign(self, node: Node, state: State) -> Ends:
        """Follow variables that are set for the rest of the line."""
        several = node.type == "variable_assignments"
        nodes = parse.parted(node, self.source) if several else [node]
        for one in nodes:
            name, value = self.assignment(one, state)
            if not assignable(name):
                self.refuse(f"it sets {name}, which changes what programs do")
            self.assigned.append(name)
            self.work.spend(4 + len(state.variables) // 8)
            state = replace(state, variables={**state.variables, name: value})
        return Ends(state, state)

    def conditional(self, node: Node, state: State) -> Ends:
        """Follow `a && b` and `a || b`."""
        left, operator, right = self.exactly(node, 3)
        first = self.statement(left, state)
        if operator.type == "&&":
            second = self.statement(right, first.ok)
            return Ends(second.ok, merged(first.fail, second.fail))
        second = self.statement(right, first.fail)
        return Ends(merged(first.ok, second.ok), second.fail)

    def pipeline(self, node: Node, state: State) -> Ends:
        """Follow the commands of a pipeline, each in a shell of its own."""
        (first, *others), wrappers = self.piped(node)
        if any(_without_redirections(other).type in BARE for other in others):
            raise Unclear("a pipeline contains a command list")
        if first.type == "list":
            return self.list_before_pipe(first, others, wrappers, state)
        led = merged(state, self.statement(first, state).either)
        for wrapper in wrappers:
            self.open_redirects(wrapper, led)
        for child in others:
            self.statement(child, state)
        return Ends(state, state)

    def piped(self, node: Node) -> tuple[list[Node], list[Node]]:
        """Return the parts of a pipeline, and the redirections around the first of them.

        The grammar takes all that stands before a redirection for one statement: `a >f | b >f | c`
        is a pipeline in a pipeline, and `a && b >f | c` has a list for its first part.
        """
        parts: list[Node] = []
        wrappers: list[Node] = []
        while node.type == "pipeline":
            children = parse.tiled(node, self.source, lines=True)
            self.work.spend(1 + len(children))
            first, *others = [child for child in children if child.type not in ("|", "|&")]
            parts[:0] = others
            wrappers[:0] = _redirections_around(first)
            node = _without_redirections(first)
        return [node, *parts], wrappers

    def list_before_pipe(
        self, found: Node, others: list[Node], wrappers: list[Node], state: State
    ) -> Ends:
        """Follow `a && b 2>&1 | c`: only `b` is piped, but the grammar treats `a && b` as one part.

        So what `a` changes holds for all that follows, in the pipeline and after it.
        """
        left, operator, right = self.exactly(found, 3)
        before = self.statement(left, state)
        here = before.ok if operator.type == "&&" else before.fail
        self.statement(right, here)
        for wrapper in wrappers:
            self.open_redirects(wrapper, here)
        for child in others:
            self.statement(child, here)
        if operator.type == "&&":
            return Ends(here, merged(before.fail, here))
        return Ends(merged(before.ok, here), here)

    def negated(self, node: Node, state: State) -> Ends:
        """Follow `! command`."""
        ends = self.statement(self.exactly(node, 2)[1], state)
        return Ends(ends.fail, ends.ok)

    def subshell(self, node: Node, state: State) -> Ends:
        """Follow `( ... )`; changes inside it do not last."""
        self.sequence(node, state)
        return Ends(state, state)

    def group(self, node: Node, state: State) -> Ends:
        """Follow `{ ...; }` and `do ... done`; a brace that touches a word is part of it."""
        opening = node.children[0]
        if not self.source[opening.end_byte : opening.end_byte + 1].isspace():
            raise Unclear(f"{opening.type} is not followed by a space")
        return self.sequence(node, state)

    def redirection(self, node: Node, state: State) -> Ends:
        """Return a statement with redirections; they count wherever the statement may have led."""
        ends = self.each(_bodies(node), state)
        self.open_redirects(node, merged(state, ends.either))
        return ends

    def open_redirects(self, node: Node, where: State) -> None:
        """Add a step for the files that a statement's redirections open."""
        self.work.spend(REDIRECT_UNITS * node.child_count)
        children = parse.tiled(node, self.source, lines=True)
        found: list[Access] = []
        for child in (child for child in children if child.type not in STATEMENTS):
            if child.type == "heredoc_redirect":
                self.here_document(child, where)
            else:
                found += redirected(child, self.reading(where), cwds=where.cwds)
        if found:
            self.steps.append(opening(found, raw(node, self.source)))

    def here_document(self, node: Node, state: State) -> None:
        """Follow the rest of the line after a here-document."""
        beside = parse.beside(node, self.source)
        self.heredocs.update(child.start_byte for child in node.children if child.type == "<<")
        for child in beside:
            if child.type in STATEMENTS:
                self.pipeline(child, state)
            else:
                found = list(redirected(child, self.reading(state), cwds=state.cwds))
                self.steps.append(opening(found, raw(child, self.source)))

    def choice(self, node: Node, state: State) -> Ends:
        """Follow `if ...; then ...; elif ...; else ...; fi`, in which every branch may run."""
        result = current = state
        for child in parse.tiled(node, self.source, lines=True):
            if child.type == "&":
                raise Unclear("part of a condition runs in the background")
            if child.type in ("elif_clause", "else_clause"):
                result = merged(result, self.choice(child, current).either)
            elif child.is_named and child.type != "comment":
                current = self.statement(child, current).either
                result = merged(result, current)
        return Ends(result, result)

    def loop(self, node: Node, state: State) -> Ends:
        """Follow `while` and `until`: the condition and the body, any number of times."""
        children = parse.tiled(node, self.source, lines=True)
        body = [child for child in children if child.is_named or child.type == "&"]
        return self.repeat(lambda now: self.each(body, now).either, state)

    def repeat(self, once: Callable[[State], State], state: State) -> Ends:
        """Go round until nothing changes any more."""
        for _ in range(ROUNDS):
            before = len(self.steps)
            after = merged(state, once(state))
            if after == state:
                return Ends(state, state)
            del self.steps[before:]
            state = after
        raise Unclear("a loop changes the state in every round")

    def iteration(self, node: Node, state: State) -> Ends:
        """Follow `for name in words; do ...; done`."""
        children = parse.tiled(node, self.source, lines=True)
        if [child.type for child in children[:3]] != ["for", "variable_name", "in"]:
            raise Unclear("this kind of loop is not supported")
        name, body = raw(children[1], self.source), children[-1]
        if not assignable(name) or body.type != "do_group":
            raise Unclear(f"it loops over {name}")
        self.assigned.append(name)
        at = self.reading(state)
        given = [child for child in children[3:-1] if child.type not in SEPARATORS]
        parse.check_parted(given)
        words = [word for child in given for word in read(child, at)]
        if len(words) > CHOICES or any(word.kind == "open" for word in words):
            words = [OPEN]

        def once(now: State) -> State:
            for word in words:
                bound = replace(now, variables={**now.variables, name: word})
                now = merged(now, self.statement(body, bound).either)
            return replace(now, variables={**now.variables, name: OPEN})

        return self.repeat(once, state)

    def cases(self, node: Node, state: State) -> Ends:
        """Follow `case word in pattern) ...;; esac`, in which every branch may run."""
        result = state
        for child in parse.tiled(node, self.source, lines=True):
            if child.type == "case_item":
                result = merged(result, self.case(child, state))
            elif child.type in WORDS:
                read(child, self.reading(state))
        return Ends(result, result)

    def case(self, node: Node, state: State) -> State:
        """Follow one branch of a `case`."""
        for child in parse.tiled(node, self.source, lines=True):
            if child.type in STATEMENTS:
                state = self.statement(child, state).either
            elif child.type in WORDS:
                read(child, self.reading(state))
            elif child.type not in ("|", ")", "(", ";;", ";", "\n", "comment"):
                raise Unclear(f"{child.type!r} is not supported")
        return state

    def test(self, node: Node, state: State) -> Ends:
        """Follow `[ ... ]` and `[[ ... ]]`."""
        words = tuple(parse.words(node, self.reading(state)))
        if words[0].text == "[[":
            parse.check(words)
            text = raw(node, self.source)
            self.steps.append(Step(words, "nothing", known=True, texts=(text,)))
        else:
            self.steps.append(study(words, self.place(state)))
        return Ends(state, state)

    def declaration(self, node: Node, state: State) -> Ends:
        """Follow `export`, `declare`, `unset` and the like, whose effects last."""
        for child in node.children:
            self.look_through(child, state)
        text = raw(node, self.source)
        words = tuple(Word(part) for part in text.split())
        self.steps.append(Step(words, "exact", "it changes the environment", texts=(text,)))
        return Ends(state, state)


def _bodies(node: Node) -> list[Node]:
    """Return the statements in a node."""
    return [child for child in node.children if child.type in STATEMENTS]


def _redirections_around(node: Node) -> Iterator[Node]:
    """Yield the redirections around a statement, from the outside in."""
    while node.type == "redirected_statement" and len(bodies := _bodies(node)) == 1:
        yield node
        node = bodies[0]


def _without_redirections(node: Node) -> Node:
    """Return the statement that a node is, but for its redirections."""
    for wrapper in _redirections_around(node):
        node = _bodies(wrapper)[0]
    return node


STATEMENTS: dict[str, Callable[[Walker, Node, State], Ends]] = {
    "command": Walker.command,
    "variable_assignment": Walker.assign,
    "variable_assignments": Walker.assign,
    "list": Walker.conditional,
    "pipeline": Walker.pipeline,
    "negated_command": Walker.negated,
    "subshell": Walker.subshell,
    "compound_statement": Walker.group,
    "do_group": Walker.group,
    "redirected_statement": Walker.redirection,
    "if_statement": Walker.choice,
    "while_statement": Walker.loop,
    "for_statement": Walker.iteration,
    "case_statement": Walker.cases,
    "test_command": Walker.test,
    "declaration_command": Walker.declaration,
    "unset_command": Walker.declaration,
}

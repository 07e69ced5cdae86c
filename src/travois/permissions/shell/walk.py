"""Walking a command line as the shell runs it: its current folder and its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.permissions.access import Access
from travois.permissions.shell import parse
from travois.permissions.shell.parse import (
    OPEN_WORD,
    WORD_NODE_TYPES,
    UnclearCommand,
    WordReader,
    node_text,
    read_words,
)
from travois.permissions.shell.plan import (
    ACCESS_UNITS,
    MAX_NESTING_DEPTH,
    MAX_PARSED_CHARS,
    REDIRECT_UNITS,
    STEP_UNITS,
    CommandStep,
    ShellWord,
    WorkBudget,
    is_assignable,
    with_variables,
)
from travois.permissions.shell.programs import analyze_program
from travois.permissions.shell.state import (
    CommandOutcomes,
    ProgramPlace,
    ShellState,
    StartFolder,
    build_redirect_step,
    merge_states,
    redirect_accesses,
)

if TYPE_CHECKING:
    from tree_sitter import Node

STATEMENT_SEPARATORS = frozenset((";", "&", "\n", ";;"))
UNBRACKETED_STATEMENTS = frozenset(("list", "pipeline"))
"""Statements without brackets, which cannot be one part of a pipeline."""
MAX_LOOP_ROUNDS = 4
MAX_LOOP_VALUES = 16


class CommandWalker:
    """Collects the steps of a command; what is not understood is noted and searched."""

    def __init__(self, text: str, folder: StartFolder, work: WorkBudget, *, depth: int = 0) -> None:
        self.source = text.encode("utf-8", "replace")
        self.start = folder
        self.work = work
        self.depth = depth
        self.heredocs: set[int] = set()
        """Where the operators of here-documents are that were understood."""
        self.steps: list[CommandStep] = []
        self.unclear = ""
        self.assigned: list[str] = []

    def run(self) -> None:
        """Follow the whole command."""
        root = parse.parse_syntax_tree(self.source)
        # A shell may still run the part that it understands, so the rest is followed all the same:
        # a question should name every program that can be found.
        if root.has_error:
            self.refuse("it could not be parsed as shell syntax")
        # Other variables may have any value: only what this text sets itself is known.
        known = {"HOME": ShellWord(self.start.home)} if self.start.home else {}
        state = ShellState((self.start.cwd,), known)
        try:
            self.follow_sequence(root, state, inside=False)
        except UnclearCommand as unclear:
            self.refuse(str(unclear))
            self.look_through(root, state)

    def refuse(self, why: str) -> None:
        """Note the first reason why the text could not be fully analyzed."""
        self.unclear = self.unclear or why

    def follow_statement(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow one statement; whatever cannot be followed is only looked through."""
        self.depth += 1
        self.work.spend(1 + node.child_count)
        try:
            if self.depth > MAX_NESTING_DEPTH:
                raise UnclearCommand("it is nested too deeply")
            follow = STATEMENT_FOLLOWERS.get(node.type)
            if follow is None:
                raise UnclearCommand(f"{node.type.replace('_', ' ')} is not supported")
            return follow(self, node, state)
        except UnclearCommand as unclear:
            self.refuse(str(unclear))
            # Commands that are only looked through add their own steps, so that a deny rule for
            # one of them still holds inside a construct that cannot be followed.
            if self.depth <= MAX_NESTING_DEPTH:
                self.look_through(node, state)
            return CommandOutcomes(state, state)
        finally:
            self.depth -= 1

    def look_through(self, node: Node, state: ShellState) -> None:
        """Find the commands inside a construct that is not followed."""
        # A list instead of recursion: the depth of the tree is chosen by whoever wrote the
        # command.
        waiting = node.children[::-1]
        while waiting:
            self.work.spend()
            child = waiting.pop()
            if child.type in STATEMENT_FOLLOWERS:
                self.follow_statement(child, state)
            else:
                waiting += reversed(child.children)

    def follow_sequence(
        self, node: Node, state: ShellState, *, inside: bool = True
    ) -> CommandOutcomes:
        """Follow statements one after the other; the first and last child may be brackets."""
        self.work.spend(node.child_count)
        children = parse.children_without_gaps(node, self.source, lines=True)
        return self.follow_each(children[1:-1] if inside else children, state)

    def follow_each(self, nodes: Iterable[Node], state: ShellState) -> CommandOutcomes:
        """Follow these statements in order; what runs in the background changes no state here."""
        before = ends = CommandOutcomes(state, state)
        for node in nodes:
            if node.type in STATEMENT_SEPARATORS or node.type == "comment":
                # `cd x &` moves a shell of its own, so what follows stands where it stood before.
                ends = before if node.type == "&" else ends
                continue
            before = ends
            if not node.is_named:
                raise UnclearCommand(f"{node.type!r} is in the place of a command")
            ends = self.follow_statement(node, ends.either)
        return ends

    def expect_children(self, node: Node, count: int) -> list[Node]:
        """Return the children of a node; raise unless there are as many as expected."""
        children = parse.children_without_gaps(node, self.source, lines=True)
        if len(children) != count:
            raise UnclearCommand(f"{node.type.replace('_', ' ')} could not be parsed")
        return children

    def word_reader(self, state: ShellState) -> WordReader:
        """Return the context for reading words in this state."""
        variables = state.variables
        self.work.spend(1 + len(variables) // 8)
        # After `a && cd b; c` there are two possible folders, and $PWD has no one value.
        if len(state.cwds) == 1 and "PWD" not in variables:
            variables = {**variables, "PWD": ShellWord(state.cwds[0])}
        follow = partial(self.follow_substitution, state=state)
        return WordReader(self.source, variables, self.start.home, follow, self.work)

    def follow_substitution(self, node: Node, *, state: ShellState) -> None:
        """Follow what runs inside `$( )`, backticks or `<( )`."""
        if node.type == "process_substitution" and not node_text(node, self.source).startswith(
            "<("
        ):
            self.refuse("it pipes output into a process substitution")
        # The grammar also opens them by "$`", which to the shell is a dollar sign and a backtick.
        if node.children[0].type.endswith("`") and "\\" in node_text(node, self.source):
            self.refuse("backslashes inside backticks are ambiguous")
        self.depth += 1
        try:
            if self.depth > MAX_NESTING_DEPTH:
                raise UnclearCommand("it is nested too deeply")
            self.follow_sequence(node, state)
        except UnclearCommand as unclear:
            self.refuse(str(unclear))
        finally:
            self.depth -= 1

    def place_in(self, state: ShellState) -> ProgramPlace:
        """Return where the next program runs."""
        return ProgramPlace(state.cwds, self.start, self.follow_script)

    def follow_script(self, text: str) -> None:
        """Follow the script that another shell runs."""
        self.work.spend(len(text) // 4)
        # The inner script shares the budget of work: scripts that contain scripts must not
        # multiply it.
        inner = CommandWalker(text, self.start, self.work, depth=self.depth + 1)
        try:
            if self.depth < MAX_NESTING_DEPTH and len(text) <= MAX_PARSED_CHARS:
                inner.run()
            else:
                inner.refuse("a nested shell command is too complex to analyze")
        finally:
            self.steps += inner.steps
            self.assigned += inner.assigned
            self.refuse(inner.unclear)

    def follow_command(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Return a program with its words, assignments and redirections."""
        self.work.spend(STEP_UNITS + 4 * node.child_count + (node.end_byte - node.start_byte) // 4)
        argv: list[ShellWord] = []
        accesses: list[Access] = []
        given: list[tuple[str, ShellWord]] = []
        at = self.word_reader(state)
        for child in parse.separate_children(node, self.source):
            match child.type:
                case "command_name":
                    argv += read_words(child.children[0], at)
                case "variable_assignment":
                    given.append(self.read_assignment(child, state))
                case kind if kind in WORD_NODE_TYPES:
                    argv += read_words(child, at)
                case _:
                    accesses += redirect_accesses(child, at, cwds=state.cwds)
        step = analyze_program(tuple(argv), self.place_in(state))
        self.work.spend(ACCESS_UNITS * (len(step.accesses) + len(accesses)))
        self.steps.append(self.finish_step(step, node, given=given, accesses=accesses))
        return self.state_after(step, state)

    def finish_step(
        self,
        step: CommandStep,
        node: Node,
        *,
        given: list[tuple[str, ShellWord]],
        accesses: list[Access],
    ) -> CommandStep:
        """Return the step with the assignments and redirections around the program."""
        texts = (*step.texts, node_text(node, self.source))
        edits = step.edits and not any(access.kind == "write" for access in accesses)
        step = replace(step, texts=texts, accesses=(*step.accesses, *accesses), edits=edits)
        return with_variables(step, given)

    def state_after(self, step: CommandStep, state: ShellState) -> CommandOutcomes:
        """Return the state after a builtin that changes it."""
        words = [word.value for word in step.argv] or [None]
        # A `cd` that needs a question (`cd "$x"`) leads to an unknown folder; the step itself says
        # so, and the question covers everything after it.
        if words[0] == "cd" and step.needs == "nothing":
            moved = tuple(
                dict.fromkeys(access.target for access in step.accesses[: len(state.cwds)])
            )
            return CommandOutcomes(replace(state, cwds=moved), state)
        if words[0] == "read" and step.needs == "nothing":
            names = [word for word in words[1:] if word and not word.startswith("-")]
            state = replace(state, variables={**state.variables, **dict.fromkeys(names, OPEN_WORD)})
            self.assigned += names
        return CommandOutcomes(state, state)

    def read_assignment(self, node: Node, state: ShellState) -> tuple[str, ShellWord]:
        """Return the name and value of `NAME=value`."""
        children = parse.children_without_gaps(node, self.source)
        kinds = [child.type for child in children]
        if kinds[:2] != ["variable_name", "="] or len(kinds) > 3:
            raise UnclearCommand("it sets an array element or appends to a variable")
        name = node_text(children[0], self.source)
        if len(kinds) == 2:
            return name, ShellWord("")
        if kinds[2] not in WORD_NODE_TYPES:
            raise UnclearCommand("it sets an array")
        words = read_words(children[2], self.word_reader(state))
        if len(words) != 1 or words[0].kind == "open":
            return name, OPEN_WORD
        return name, ShellWord(words[0].text)

    def follow_assignments(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow variables that are set for the rest of the line."""
        several = node.type == "variable_assignments"
        nodes = parse.separate_children(node, self.source) if several else [node]
        for one in nodes:
            name, value = self.read_assignment(one, state)
            if not is_assignable(name):
                self.refuse(f"it sets {name}, which changes what programs do")
            self.assigned.append(name)
            self.work.spend(4 + len(state.variables) // 8)
            state = replace(state, variables={**state.variables, name: value})
        return CommandOutcomes(state, state)

    def follow_conditional(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `a && b` and `a || b`."""
        left, operator, right = self.expect_children(node, 3)
        first = self.follow_statement(left, state)
        # What runs second stands where the first left off, and only on the way that leads to it:
        # after `cd x || exit`, the rest of the line is in x.
        if operator.type == "&&":
            second = self.follow_statement(right, first.ok)
            return CommandOutcomes(second.ok, merge_states(first.fail, second.fail))
        second = self.follow_statement(right, first.fail)
        return CommandOutcomes(merge_states(first.ok, second.ok), second.fail)

    def follow_pipeline(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow the commands of a pipeline, each in a shell of its own."""
        (first, *others), wrappers = self.split_pipeline(node)
        if any(_without_redirections(other).type in UNBRACKETED_STATEMENTS for other in others):
            raise UnclearCommand("a pipeline contains a command list")
        if first.type == "list":
            return self.follow_list_before_pipe(first, others, wrappers, state)
        # The grammar puts redirections around the first part, which may have moved before they are
        # opened: a relative path in them counts for both places.
        led = merge_states(state, self.follow_statement(first, state).either)
        for wrapper in wrappers:
            self.open_redirects(wrapper, led)
        for child in others:
            self.follow_statement(child, state)
        return CommandOutcomes(state, state)

    def split_pipeline(self, node: Node) -> tuple[list[Node], list[Node]]:
        """Return the parts of a pipeline, and the redirections around the first of them.

        The grammar takes all that stands before a redirection for one statement: `a >f | b >f | c`
        is a pipeline in a pipeline, and `a && b >f | c` has a list for its first part.
        """
        parts: list[Node] = []
        wrappers: list[Node] = []
        while node.type == "pipeline":
            children = parse.children_without_gaps(node, self.source, lines=True)
            self.work.spend(1 + len(children))
            first, *others = [child for child in children if child.type not in ("|", "|&")]
            parts[:0] = others
            wrappers[:0] = _redirections_around(first)
            node = _without_redirections(first)
        return [node, *parts], wrappers

    def follow_list_before_pipe(
        self, found: Node, others: list[Node], wrappers: list[Node], state: ShellState
    ) -> CommandOutcomes:
        """Follow `a && b 2>&1 | c`: only `b` is piped, but the grammar treats `a && b` as one part.

        So what `a` changes holds for all that follows, in the pipeline and after it.
        """
        left, operator, right = self.expect_children(found, 3)
        before = self.follow_statement(left, state)
        here = before.ok if operator.type == "&&" else before.fail
        self.follow_statement(right, here)
        for wrapper in wrappers:
            self.open_redirects(wrapper, here)
        for child in others:
            self.follow_statement(child, here)
        if operator.type == "&&":
            return CommandOutcomes(here, merge_states(before.fail, here))
        return CommandOutcomes(merge_states(before.ok, here), here)

    def follow_negation(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `! command`."""
        ends = self.follow_statement(self.expect_children(node, 2)[1], state)
        return CommandOutcomes(ends.fail, ends.ok)

    def follow_subshell(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `( ... )`; changes inside it do not last."""
        self.follow_sequence(node, state)
        return CommandOutcomes(state, state)

    def follow_group(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `{ ...; }` and `do ... done`; a brace that touches a word is part of it."""
        opening = node.children[0]
        if not self.source[opening.end_byte : opening.end_byte + 1].isspace():
            raise UnclearCommand(f"{opening.type} is not followed by a space")
        return self.follow_sequence(node, state)

    def follow_redirection(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Return a statement with redirections; they count wherever the statement may have led."""
        ends = self.follow_each(_statements_in(node), state)
        self.open_redirects(node, merge_states(state, ends.either))
        return ends

    def open_redirects(self, node: Node, where: ShellState) -> None:
        """Add a step for the files that a statement's redirections open."""
        self.work.spend(REDIRECT_UNITS * node.child_count)
        children = parse.children_without_gaps(node, self.source, lines=True)
        found: list[Access] = []
        for child in (child for child in children if child.type not in STATEMENT_FOLLOWERS):
            if child.type == "heredoc_redirect":
                self.follow_heredoc(child, where)
            else:
                found += redirect_accesses(child, self.word_reader(where), cwds=where.cwds)
        if found:
            self.steps.append(build_redirect_step(found, node_text(node, self.source)))

    def follow_heredoc(self, node: Node, state: ShellState) -> None:
        """Follow the rest of the line after a here-document."""
        beside = parse.nodes_after_heredoc(node, self.source)
        self.heredocs.update(child.start_byte for child in node.children if child.type == "<<")
        for child in beside:
            if child.type in STATEMENT_FOLLOWERS:
                self.follow_pipeline(child, state)
            else:
                found = list(redirect_accesses(child, self.word_reader(state), cwds=state.cwds))
                self.steps.append(build_redirect_step(found, node_text(child, self.source)))

    def follow_if(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `if ...; then ...; elif ...; else ...; fi`, in which every branch may run."""
        result = current = state
        for child in parse.children_without_gaps(node, self.source, lines=True):
            if child.type == "&":
                raise UnclearCommand("part of a condition runs in the background")
            if child.type in ("elif_clause", "else_clause"):
                result = merge_states(result, self.follow_if(child, current).either)
            elif child.is_named and child.type != "comment":
                current = self.follow_statement(child, current).either
                result = merge_states(result, current)
        return CommandOutcomes(result, result)

    def follow_while(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `while` and `until`: the condition and the body, any number of times."""
        children = parse.children_without_gaps(node, self.source, lines=True)
        body = [child for child in children if child.is_named or child.type == "&"]
        return self.follow_until_stable(lambda now: self.follow_each(body, now).either, state)

    def follow_until_stable(
        self, once: Callable[[ShellState], ShellState], state: ShellState
    ) -> CommandOutcomes:
        """Repeat a loop's body until the state no longer changes."""
        # The steps of a round hold for the state that it began with, so those of the earlier
        # rounds are dropped: only the last round, in which nothing new was learned, describes all
        # of them.
        for _ in range(MAX_LOOP_ROUNDS):
            before = len(self.steps)
            after = merge_states(state, once(state))
            if after == state:
                return CommandOutcomes(state, state)
            del self.steps[before:]
            state = after
        raise UnclearCommand("a loop changes the state in every round")

    def follow_for(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `for name in words; do ...; done`."""
        children = parse.children_without_gaps(node, self.source, lines=True)
        if [child.type for child in children[:3]] != ["for", "variable_name", "in"]:
            raise UnclearCommand("this kind of loop is not supported")
        name, body = node_text(children[1], self.source), children[-1]
        if not is_assignable(name) or body.type != "do_group":
            raise UnclearCommand(f"it loops over {name}")
        self.assigned.append(name)
        at = self.word_reader(state)
        given = [child for child in children[3:-1] if child.type not in STATEMENT_SEPARATORS]
        parse.check_separate(given)
        words = [word for child in given for word in read_words(child, at)]
        # One unknown value makes all of them unknown: which round has which value is not followed.
        if len(words) > MAX_LOOP_VALUES or any(word.kind == "open" for word in words):
            words = [OPEN_WORD]

        def follow_body_once(now: ShellState) -> ShellState:
            for word in words:
                bound = replace(now, variables={**now.variables, name: word})
                now = merge_states(now, self.follow_statement(body, bound).either)
            return replace(now, variables={**now.variables, name: OPEN_WORD})

        return self.follow_until_stable(follow_body_once, state)

    def follow_case(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `case word in pattern) ...;; esac`, in which every branch may run."""
        result = state
        for child in parse.children_without_gaps(node, self.source, lines=True):
            if child.type == "case_item":
                result = merge_states(result, self.follow_case_item(child, state))
            elif child.type in WORD_NODE_TYPES:
                read_words(child, self.word_reader(state))
        return CommandOutcomes(result, result)

    def follow_case_item(self, node: Node, state: ShellState) -> ShellState:
        """Follow one branch of a `case`."""
        for child in parse.children_without_gaps(node, self.source, lines=True):
            if child.type in STATEMENT_FOLLOWERS:
                state = self.follow_statement(child, state).either
            elif child.type in WORD_NODE_TYPES:
                read_words(child, self.word_reader(state))
            elif child.type not in ("|", ")", "(", ";;", ";", "\n", "comment"):
                raise UnclearCommand(f"{child.type!r} is not supported")
        return state

    def follow_test(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `[ ... ]` and `[[ ... ]]`."""
        words = tuple(parse.iterate_test_words(node, self.word_reader(state)))
        if words[0].text == "[[":
            parse.check_test_words(words)
            text = node_text(node, self.source)
            self.steps.append(CommandStep(words, "nothing", known=True, texts=(text,)))
        else:
            self.steps.append(analyze_program(words, self.place_in(state)))
        return CommandOutcomes(state, state)

    def follow_declaration(self, node: Node, state: ShellState) -> CommandOutcomes:
        """Follow `export`, `declare`, `unset` and the like, whose effects last."""
        for child in node.children:
            self.look_through(child, state)
        text = node_text(node, self.source)
        # `export PATH=…` and `declare -f` change what later words of the line mean, in ways that
        # are not followed, so the whole statement needs a question or an exact rule.
        words = tuple(ShellWord(part) for part in text.split())
        self.steps.append(CommandStep(words, "exact", "it changes the environment", texts=(text,)))
        return CommandOutcomes(state, state)


def _statements_in(node: Node) -> list[Node]:
    """Return the statements in a shell syntax node."""
    return [child for child in node.children if child.type in STATEMENT_FOLLOWERS]


def _redirections_around(node: Node) -> Iterator[Node]:
    """Yield the redirections around a shell statement, from the outside in."""
    while node.type == "redirected_statement" and len(bodies := _statements_in(node)) == 1:
        yield node
        node = bodies[0]


def _without_redirections(node: Node) -> Node:
    """Return the shell statement without its redirections."""
    for wrapper in _redirections_around(node):
        node = _statements_in(wrapper)[0]
    return node


STATEMENT_FOLLOWERS: dict[str, Callable[[CommandWalker, Node, ShellState], CommandOutcomes]] = {
    "command": CommandWalker.follow_command,
    "variable_assignment": CommandWalker.follow_assignments,
    "variable_assignments": CommandWalker.follow_assignments,
    "list": CommandWalker.follow_conditional,
    "pipeline": CommandWalker.follow_pipeline,
    "negated_command": CommandWalker.follow_negation,
    "subshell": CommandWalker.follow_subshell,
    "compound_statement": CommandWalker.follow_group,
    "do_group": CommandWalker.follow_group,
    "redirected_statement": CommandWalker.follow_redirection,
    "if_statement": CommandWalker.follow_if,
    "while_statement": CommandWalker.follow_while,
    "for_statement": CommandWalker.follow_for,
    "case_statement": CommandWalker.follow_case,
    "test_command": CommandWalker.follow_test,
    "declaration_command": CommandWalker.follow_declaration,
    "unset_command": CommandWalker.follow_declaration,
}

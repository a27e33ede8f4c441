"""Fills letters.

{name}              the value of name; {a.b} the value of b in the object a. A text is taken as it is, a number
                    as JSON writes it, true and false as yes and no. What is not there, null, a list or an
                    object becomes nothing.
{name|ITEM}         ITEM (a text without braces) if the value would become nothing or is an empty text
{{ and }}           a brace. A single } is an error.
{#name}...{/name}   a section. A list: once for each entry, and within it the entry's own names come first,
                    {.} is the entry itself. An object: once, its names first. true, a text or number that is
                    not empty and not 0: once. Else: not at all.
{^name}...{/name}   once if {#name} would not be there at all
{/name}             must end the section that was begun last
A mark that stands alone on its line, blanks aside, and begins or ends a section takes the whole line with it.
Names are letters, digits and _ ; values are never read as templates again.
"""
import json
import re
import sys

NAME = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*|\."
TOKEN = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<kind>[#^/]?)(?P<name>" + NAME + r")(?:\|(?P<item>[^{}]*))?\}|(?P<bad>[{}])|(?P<text>[^{}]+)")
ALONE = re.compile(r"^[ \t]*(\{[#^/](?:" + NAME + r")\})[ \t]*(?:\n|\Z)", re.M)


class Wrong(Exception):
    """The argument is the offset of the mark that is wrong."""


class Section:
    def __init__(self, kind, name, start):
        self.kind, self.name, self.start, self.parts = kind, name, start, []


def strip_lines(template):
    """Takes whole lines away around marks that stand alone; gives each kept character its line."""
    out, lines, last = [], [], 0
    for m in ALONE.finditer(template):
        if braces_open(template, m.start(1)):
            continue
        for a, b in ((last, m.start()), m.span(1)):
            out.append(template[a:b])
            lines += [template.count("\n", 0, a) + 1 + template.count("\n", a, i) for i in range(a, b)]
        last = m.end()
    out.append(template[last:])
    first = template.count("\n", 0, last) + 1
    for c in template[last:]:
        lines.append(first)
        first += c == "\n"
    return "".join(out), lines + [first]


def braces_open(template, at):
    """Whether the brace at this place is the second of a pair."""
    n = 0
    while at - n > 0 and template[at - n - 1] == "{":
        n += 1
    return n % 2 == 1


def parse(template):
    stack = [Section("", "", 0)]
    for m in TOKEN.finditer(template):
        if m["bad"]:
            raise Wrong(m.start())
        if m["text"]:
            stack[-1].parts.append(m["text"])
        elif m["brace"]:
            stack[-1].parts.append(m["brace"][0])
        elif m["kind"] == "":
            stack[-1].parts.append((m["name"], m["item"] or ""))
        elif m["item"] is not None:
            raise Wrong(m.start())
        elif m["kind"] == "/":
            if len(stack) == 1 or stack[-1].name != m["name"]:
                raise Wrong(m.start())
            done = stack.pop()
            stack[-1].parts.append(done)
        else:
            stack.append(Section(m["kind"], m["name"], m.start()))
    if len(stack) > 1:
        raise Wrong(stack[-1].start)
    return stack[0].parts


def lookup(name, scopes):
    if name == ".":
        return scopes[-1]
    first, *rest = name.split(".")
    for scope in reversed(scopes):
        if isinstance(scope, dict) and first in scope:
            value = scope[first]
            break
    else:
        return None
    for part in rest:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return json.dumps(value)
    return ""


def rounds(value):
    """The scopes in which a section is worked, one for each round."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [value]
    return [{}] if value else []


def render(parts, scopes):
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, tuple):
            yield text(lookup(part[0], scopes)) or part[1]
        else:
            value = lookup(part.name, scopes)
            turns = rounds(value)
            if part.kind == "^":
                turns = [] if turns else [None]
            for turn in turns:
                inner = isinstance(value, (list, dict)) and part.kind == "#"
                yield from render(part.parts, scopes + [turn] if inner else scopes)


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as f:
        template, lines = strip_lines(f.read())
    with open(sys.argv[2], encoding="utf-8") as f:
        values = json.load(f)
    try:
        parts = parse(template)
    except Wrong as wrong:
        print("error: line %d" % lines[wrong.args[0]])
        return 1
    sys.stdout.write("".join(render(parts, [values])))
    return 0


if __name__ == "__main__":
    sys.exit(main())

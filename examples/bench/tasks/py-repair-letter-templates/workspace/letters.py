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

MARK = re.compile(r"\{([#^/]?)([\w.]+)(?:\|([^{}]*))?\}")


def lookup(name, values):
    for part in name.split("."):
        values = values.get(part)
    return values


def fill(template, values):
    while True:
        m = re.search(r"\{([#^])(\w+)\}(.*)\{/\2\}", template, re.S)
        if not m:
            break
        value = lookup(m.group(2), values)
        if m.group(1) == "^":
            new = "" if value else m.group(3)
        elif isinstance(value, list):
            new = "".join(fill(m.group(3), entry) for entry in value)
        else:
            new = m.group(3) if value else ""
        template = template[:m.start()] + new + template[m.end():]
    out = MARK.sub(lambda m: str(lookup(m.group(2), values) or m.group(3) or ""), template)
    return out.replace("{{", "{").replace("}}", "}")


def main():
    with open(sys.argv[1]) as f:
        template = f.read()
    with open(sys.argv[2]) as f:
        values = json.load(f)
    sys.stdout.write(fill(template, values))


if __name__ == "__main__":
    main()

"""Expands knitting patterns: rows on stdin, stitches on stdout."""
import re
import sys

STITCHES = {"k": (1, 1), "p": (1, 1), "sl": (1, 1), "yo": (0, 1), "k2tog": (2, 1), "ssk": (2, 1), "k3tog": (3, 1), "kfb": (1, 2)}
PLAIN = ("k", "p", "sl")
MOST = 1_000_000  # stitches of a row; brackets in brackets grow fast


class Wrong(Exception):
    pass


def unreadable():
    return Wrong("cannot read it")


def measure(stitches):
    return sum(STITCHES[s][0] for s in stitches), sum(STITCHES[s][1] for s in stitches)


class Row:
    """A recursive descent over the tokens of one row."""

    def __init__(self, text):
        text = re.sub(r"[ \t]", "", text)
        self.tokens = re.findall(r"[a-z]+[0-9]+tog|repeattoend|x[0-9]+|[a-z]+|[0-9]+|[(),]", text)
        if "".join(self.tokens) != text:
            raise unreadable()

    def peek(self):
        return self.tokens[0] if self.tokens else ""

    def take(self):
        if not self.tokens:
            raise unreadable()
        return self.tokens.pop(0)

    def count(self, text):
        if not re.fullmatch("[1-9][0-9]{0,2}", text):
            raise unreadable()
        return int(text)

    def items(self, below=None, outermost=False):
        out = []
        while True:
            if self.peek() == "(":
                out += self.bracket(out, below, outermost)
            else:
                out += self.stitch()
            if len(out) > MOST:
                raise unreadable()
            if self.peek() != ",":
                return out
            self.take()

    def stitch(self):
        name = self.take()
        if name not in STITCHES:
            raise unreadable()
        times = 1
        if name in PLAIN and self.peek().isdigit():
            times = self.count(self.take())
        return [name] * times

    def bracket(self, before, below, outermost):
        self.take()
        inner = self.items()
        if self.take() != ")":
            raise unreadable()
        if re.fullmatch("x[0-9]+", self.peek()):
            return inner * self.count(self.take()[1:])
        if not outermost or self.tokens != [",", "repeattoend"] or below is None:
            raise unreadable()
        self.tokens = []
        used, step = measure(before)[0], measure(inner)[0]
        if step == 0 or used > below or (below - used) % step:
            raise Wrong("does not come out evenly")
        return inner * ((below - used) // step)


def expand(line, rows, below):
    again = re.fullmatch(r"[ \t]*repeat[ \t]+row[ \t]+([0-9]+)[ \t]*", line)
    if again:
        number = int(again.group(1))
        if not 1 <= number <= len(rows):
            raise unreadable()
        stitches = rows[number - 1]
    else:
        row = Row(line)
        stitches = row.items(below, outermost=True)
        if row.tokens:
            raise unreadable()
    used, made = measure(stitches)
    if below is not None and used != below:
        raise Wrong("uses %d of %d stitches" % (used, below))
    return stitches, used, made


def main():
    rows, below = [], None
    for number, line in enumerate(sys.stdin, 1):
        try:
            stitches, used, below = expand(line.rstrip("\n"), rows, below)
        except Wrong as wrong:
            print("row %d: %s" % (number, wrong))
            return 1
        rows.append(stitches)
        print("%s | %d -> %d" % (" ".join(stitches), used, below))
    return 0


if __name__ == "__main__":
    sys.exit(main())

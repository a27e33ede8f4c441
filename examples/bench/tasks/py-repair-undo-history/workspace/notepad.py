"""A line editor with undo and redo; see COMMANDS.md."""
import sys


class Notepad:
    def __init__(self):
        self.lines = []
        self.undone = []
        self.done = []
        self.depth = 0
        self.most = None

    def step(self):
        if self.depth == 0:
            self.done.append(self.lines)

    def add(self, text):
        self.step()
        self.lines.append(text)

    def set(self, n, text):
        self.step()
        if not 1 <= n <= len(self.lines):
            return "no line %d" % n
        self.lines[n - 1] = text

    def delete(self, n):
        self.step()
        if not 1 <= n <= len(self.lines):
            return "no line %d" % n
        del self.lines[n - 1]

    def begin(self):
        self.step()
        self.depth += 1

    def end(self):
        self.depth -= 1

    def undo(self):
        if not self.done:
            return "nothing to undo"
        self.undone.append(self.lines)
        self.lines = self.done.pop()

    def redo(self):
        if not self.undone:
            return "nothing to redo"
        self.lines = self.undone.pop()

    def limit(self, n):
        self.most = n
        self.done = self.done[-n:]

    def show(self):
        return "\n".join("%d: %s" % (i + 1, t) for i, t in enumerate(self.lines)) or "empty"


def main():
    pad = Notepad()
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        number, _, text = rest.partition(" ")
        if word == "add":
            said = pad.add(rest)
        elif word == "set" and number.isdigit():
            said = pad.set(int(number), text)
        elif word == "del" and rest.isdigit():
            said = pad.delete(int(rest))
        elif word == "limit" and rest.isdigit():
            said = pad.limit(int(rest))
        elif word in ("begin", "end", "undo", "redo", "show") and not rest:
            said = getattr(pad, word)()
        else:
            said = "?"
        if said is not None:
            print(said)


if __name__ == "__main__":
    main()

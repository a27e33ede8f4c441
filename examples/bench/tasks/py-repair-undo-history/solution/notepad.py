"""A line editor with undo and redo; see COMMANDS.md.

The text is a tuple, so a step is nothing but the text before it: two lists of
tuples are the whole history.
"""
import sys


class Notepad:
    def __init__(self):
        self.lines = ()
        self.past = []
        self.future = []
        self.opened = None  # the text when the outermost group began
        self.depth = 0
        self.most = None

    def change(self, lines):
        before, self.lines = self.lines, lines
        if self.depth == 0:
            self.remember(before)

    def remember(self, before):
        """Makes a step of what lies between before and now, if it differs."""
        if before == self.lines:
            return
        self.past.append(before)
        self.future.clear()
        self.forget()

    def forget(self):
        if self.most is not None:
            del self.past[:max(0, len(self.past) - self.most)]

    def add(self, text):
        self.change(self.lines + (text,))

    def set(self, n, text):
        return self.splice(n, (text,))

    def delete(self, n):
        return self.splice(n, ())

    def splice(self, n, middle):
        if not 1 <= n <= len(self.lines):
            return "no line %d" % n
        self.change(self.lines[:n - 1] + middle + self.lines[n:])
        return None

    def begin(self):
        if self.depth == 0:
            self.opened = self.lines
        self.depth += 1

    def end(self):
        if self.depth == 0:
            return "?"
        self.depth -= 1
        if self.depth == 0:
            self.remember(self.opened)
        return None

    def undo(self):
        if self.depth:
            if self.lines == self.opened:
                return "nothing to undo"
            self.lines = self.opened
            return None
        if not self.past:
            return "nothing to undo"
        self.future.append(self.lines)
        self.lines = self.past.pop()
        return None

    def redo(self):
        if self.depth or not self.future:
            return "nothing to redo"
        self.past.append(self.lines)
        self.lines = self.future.pop()
        self.forget()
        return None

    def limit(self, n):
        self.most = n
        self.forget()

    def show(self):
        return "\n".join("%d: %s" % (i, t) for i, t in enumerate(self.lines, 1)) or "empty"


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

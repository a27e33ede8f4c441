"""Quotas over a sliding window: JSON lines in, JSON lines out."""
import json
import sys


class Refused(ValueError):
    pass


def whole(value, least):
    if type(value) is not int or value < least:
        raise Refused(value)
    return value


def text(value):
    if not isinstance(value, str):
        raise Refused(value)
    return value


class Meter:
    def __init__(self):
        self.quotas = {}  # name: (pages, seconds)
        self.grants = {}  # name: [[at, pages], ...], times rise
        self.now = 0

    def clock(self, at):
        if whole(at, 0) < self.now:
            raise Refused(at)

    def window(self, name, at, seconds):
        return sum(pages for when, pages in self.grants.get(name, ()) if when > at - seconds)

    def quota(self, name, pages, seconds):
        self.quotas[text(name)] = (whole(pages, 0), whole(seconds, 1))
        return {"ok": True}

    def request(self, at, who, pages):
        text(who), whole(pages, 1), self.clock(at)
        self.now = at
        left = None
        if who in self.quotas:
            most, seconds = self.quotas[who]
            left = most - self.window(who, at, seconds) - pages
            if left < 0:
                return {"granted": False, "retry": self.retry(who, at, pages)}
        self.grants.setdefault(who, []).append([at, pages])
        return {"granted": True, "left": left}

    def retry(self, who, at, pages):
        most, seconds = self.quotas[who]
        if pages > most:
            return None
        used = self.window(who, at, seconds)
        for when, amount in self.grants[who]:
            if when <= at - seconds:
                continue
            used -= amount
            if used + pages <= most:
                return when + seconds
        raise AssertionError("an empty window fits what the quota fits")

    def give_back(self, at, who, pages):
        text(who), whole(pages, 1), self.clock(at)
        grants = self.grants.get(who, [])
        if pages > sum(p for _, p in grants):
            raise Refused(pages)
        self.now = at
        while pages:
            taken = min(pages, grants[-1][1])
            grants[-1][1] -= taken
            pages -= taken
            if grants[-1][1] == 0:
                grants.pop()
        return {"ok": True}

    def report(self, at):
        self.clock(at)
        self.now = at
        return {"report": {name: self.window(name, at, self.quotas[name][1]) for name in sorted(self.quotas)}}

    def answer(self, line):
        try:
            message = json.loads(line)
            keys = sorted(message) if isinstance(message, dict) else None
            if keys == ["pages", "quota", "seconds"]:
                return self.quota(message["quota"], message["pages"], message["seconds"])
            if keys == ["at", "pages", "who"]:
                return self.request(message["at"], message["who"], message["pages"])
            if keys == ["at", "return", "who"]:
                return self.give_back(message["at"], message["who"], message["return"])
            if keys == ["report"]:
                return self.report(message["report"])
        except ValueError:
            pass
        return {"error": True}


if __name__ == "__main__":
    meter = Meter()
    for line in sys.stdin:
        print(json.dumps(meter.answer(line)), flush=True)

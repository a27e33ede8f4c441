"""Hidden test of letters.py: the post of one morning."""
import json
import pathlib
import subprocess
import sys
import tempfile

VALUES = {"to": "Mrs. Quill", "n": 3, "zero": 0, "price": 2.5, "yes": True, "no": False, "nil": None, "blank": "",
          "tricky": "{to} {{ {#n}", "from": {"name": "Otto", "town": {"zip": "90-210"}},
          "items": [{"name": "ink", "n": 12}, {"name": "nibs"}, {}], "words": ["seal", "", "wax"], "none": [], "grid": [[1, 2], [], [3]]}
POST = [
    ("Dear {to},", "Dear Mrs. Quill,"),
    ("{n}|{zero}|{price}|{yes}|{no}|{nil}|{blank}|{items}|{from}|{x}", "3|0|2.5|yes|no|||||"),
    ("{nil|nothing} {blank|empty} {zero|never} {x.y|far} {to|you}{x|}", "nothing empty 0 far Mrs. Quill"),
    ("{from.town.zip} {from.town} {from.name.first|-}", "90-210  -"),
    ("{{to}} {{{to}}} }}{{", "{to} {Mrs. Quill} }{"),
    ("{tricky}", "{to} {{ {#n}"),
    ("{#items}{n}x {name} for {to}; {/items}", "12x ink for Mrs. Quill; 3x nibs for Mrs. Quill; 3x  for Mrs. Quill; "),
    ("{#words}<{.}>{/words}{#none}never{/none}{^none}no stamps{/none}", "<seal><><wax>no stamps"),
    ("{#from}{name} of {town.zip}, {to}{/from}", "Otto of 90-210, Mrs. Quill"),
    ("{#zero}a{/zero}{#blank}b{/blank}{#nil}c{/nil}{#x}d{/x}{#no}e{/no}{#yes}f{/yes}{#to}g{/to}{#price}h{/price}", "fgh"),
    ("{^zero}a{/zero}{^blank}b{/blank}{^nil}c{/nil}{^x}d{/x}{^no}e{/no}{^yes}f{/yes}{^to}g{/to}{^items}h{/items}", "abcde"),
    ("{#yes}{#words}{^x}{.}{/x}{/words}{/yes}", "sealwax"),
    ("{#grid}[{#.}{.},{/.}]{/grid}", "[1,2,][][3,]"),
    ("{#words}{#yes}({.}){/yes}{/words}", "(seal)()(wax)"),
    ("List:\n  {#words}\n- {.}\n{/words}  \nend\n", "List:\n- seal\n- \n- wax\nend\n"),
    ("{#words} x {/words}\n{#yes}\n\n{/yes}", " x  x  x \n\n"),
    ("{{#yes}}\n{#yes} kept {/yes}\n", "{#yes}\n kept \n"),
    ("a {#items}{#from}{name}{/from}{^from}?{/from}{/items}", "a OttoOttoOtto"),
    ("{words.0|no index}{ .}", None, 1),
    ("one\ntwo }\n", None, 2),
    ("one\n\n{to", None, 3),
    ("{#yes}\n{#to}\n{/yes}\n{/to}", None, 3),
    ("x\n{/yes}", None, 2),
    ("{#yes}a\n{#to}b\n\n", None, 2),
    ("{to}\n{}", None, 2),
    ("{#to|x}{/to}", None, 1),
    ("{to.}", None, 1),
    ("\n\n{#t o}{/t o}", None, 3),
]


def main():
    room = pathlib.Path(tempfile.mkdtemp())
    (room / "values").write_text(json.dumps(VALUES))
    returned = 0
    for template, letter, *line in POST:
        (room / "template").write_text(template)
        sent = subprocess.run([sys.executable, "-B", "letters.py", room / "template", room / "values"], capture_output=True, text=True, timeout=30)
        want = (0, letter) if letter is not None else (1, "error: line %d\n" % line[0])
        if (sent.returncode, sent.stdout) != want:
            returned += 1
            print("returned to sender: %r gave %r" % (template, sent.stdout))
    if returned:
        return 1
    print("the postmistress sealed every letter of the morning and sent it off")
    return 0


sys.exit(main())

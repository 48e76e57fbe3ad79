"""Unusual texts, JSON values, numbers, ids and bytes, by a short name each."""

from __future__ import annotations

import json

TEXTS: dict[str, str] = {
    "null-byte": "a\x00b\x00",
    "control-characters": "".join(map(chr, range(1, 32))) + "\x7f",
    "c1-controls": "".join(map(chr, range(0x80, 0xA0))),
    "every-plane": "a\u00e9\u4e2d\U0001f600\U00020000\U0003134a\U000e0021\U000f0000\U0010fffd",
    "edges-of-utf8": "\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff",
    "noncharacters": "\ufdd0\ufffe\uffff\U0001fffe\U0010fffe",
    "emoji-joined": "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308",
    "emoji-skin-and-flag": "\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea 1\ufe0f\u20e3",
    "right-to-left": "\u202e\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd\u200f\u2066x\u2069",
    "combining": "e\u0301 \u00e9 \u1100\u1161\u11a8 \uac01 Z\u0351\u036b\u0343\u036a",
    "byte-order-mark": "\ufeffx\ufeff",
    "line-separators": "a\u2028b\u2029c\u0085d\r\ne",
    "surrounded-by-space": " \t\u00a0\u3000x\u3000\u00a0\t ",
    "script-tag": "<script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"`",
    "templates": "%s %d %n ${x} {{y}} #{z} $(id) ' OR 1=1 -- \\",
    "glob-and-tag": "*?[a-z]{tag}",
    "replacement": "\ufffd",
    "looks-like-json": '["a",[1,null,{}]]',
    "looks-like-an-escape": "\\u0041 \\n \\\\ \\x00",
}
"""Texts that a client has to hand on as they are. None has a colon, so that each can also name a queue."""

VALUES: dict[str, str] = {
    "empty-object": "{}",
    "empty-array": "[]",
    "empty-text": '""',
    "null": "null",
    "zero": "0",
    "false": "false",
    "empties-inside": '{"object":{},"array":[],"text":"","null":null,"zero":0,"false":false}',
    "empties-in-array": '[{},[],"",null,0,false,[[]],[{}],[null]]',
    "empty-key": '{"":{"":[]}}',
    "keys-of-javascript": '{"__proto__":{"polluted":true},"constructor":1,"prototype":2,"toString":3,"length":4}',
    "keys-like-numbers": '{"9":1,"10":2,"4294967294":3,"4294967295":4,"01":5,"-1":6,"1.5":7,"a":8}',
    "keys-equal-when-composed": '{"\u00e9":1,"e\u0301":2}',
    "looks-like-another-type": '["null","true","0","NaN","Infinity","undefined","[]","2020-01-01T00:00:00.000Z"]',
    "all-texts": json.dumps([*TEXTS, *TEXTS.values()], ensure_ascii=False, separators=(",", ":")),
}
"""Values that every JSON library can hold, as JSON.stringify writes them. Numbers are in `NUMBERS`."""

SPELLINGS: dict[str, str] = {
    "spaces": ' { "a" : [ 1 , 2 ] ,\t"b" : "c" }\r\n',
    "ascii-only": '{"\\u00e9":"\\ud83d\\ude00"}',
    "needless-escapes": '"\\u0041\\u003cb\\u003e\\/\\u2028"',
    "upper-case-escapes": '"\\u00E9\\u001F"',
    "keys-twice": '{"a":1,"1":"x","a":2,"1":"y"}',
    "keys-in-another-order": '{"b":1,"10":2,"9":3,"a":4}',
    "numbers": "[1.0,100e-2,1E5,0.10,1e+2]",
}
"""JSON texts as another language may write them: JSON.stringify would write each in another way."""

LONE_SURROGATES: dict[str, str] = {
    "as-values": '["\\ud800","\\udfff","\\udc00\\ud800","x\\ud83dy"]',
    "as-key": '{"\\ud800":"\\udfff"}',
}
"""JSON texts with halves of surrogate pairs, which JavaScript's texts can hold and UTF-8 cannot."""

NUMBERS: tuple[str, ...] = (
    *("0", "-0", "-0.0", "1.0", "100e-2", "1E5", "0.1", "-1.5"),
    *("2147483648", "-2147483649", "4294967296", "9007199254740991", "-9007199254740991"),
    *("9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551616"),
    *("123456789012345678901234567890", "1e21", "1e-7", "0.000001", "3.141592653589793238462643383279"),
    *("5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "1e-400"),
)
"""JSON numbers, also ones that a double cannot hold exactly."""

BEYOND_DOUBLES: tuple[str, ...] = ("1e400", "-1e400", "9" * 400)
"""JSON numbers that are infinite as doubles."""

IDS: tuple[str, ...] = (
    *("-0", "00", "+1", " 1", "1 ", "1.0", "1e3", "0x1F", "Infinity", "9007199254740993", "1000000000000000000000"),
    *("\u0663", "\uff11", "__proto__", "constructor", "toString", "null", "undefined", "true"),
    *("a b", "a\nb", "a\r\nb", "*", "?", "[a]", "{q}", "a/b", "../x", "$", "-", "a:b:c", "repeat:a:b"),
    *("\x00", "\u00e9", "e\u0301", "\U0001f389", "\u202eabc", "<b>", "%00", "x" * 1000),
)
"""Ids that Node lets its users choose, among them numbers that are none of the counter's."""

BYTES: dict[str, bytes] = {
    "never-in-utf8": b"\xff\xfe",
    "lone-continuation": b"\x80",
    "cut-off": b"\xe2\x82",
    "cut-off-emoji": b"\xf0\x9f\x98",
    "overlong": b"\xc0\xaf",
    "surrogate": b"\xed\xa0\x80",
    "beyond-unicode": b"\xf4\x90\x80\x80",
    "latin-1": b"caf\xe9",
}
"""Bytes that are not UTF-8. Node writes `surrogate` for a job name with a lone surrogate."""


def same_json(raw: str) -> str:
    """A JSON text in a form that is equal for equal values (numbers as doubles), in ASCII; or that it is not JSON."""
    try:
        return json.dumps(json.loads(raw, parse_int=float), sort_keys=True)
    except ValueError:
        return f"no JSON: {raw!a}"


def nested(depth: int, opening: str, inner: str, closing: str) -> str:
    """A JSON text of this many levels."""
    return opening * depth + inner + closing * depth

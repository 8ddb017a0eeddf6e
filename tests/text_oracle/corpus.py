"""More than two thousand lines that tokenizers stumble over, the same at every run."""

import random

SCRIPTS = {
    "latin": "The quick brown fox doesn't jump over the lazy dog's 12 fences",
    "french": "L'été, où naît-il ? Ça dépend : cœur, naïveté, hôpital",
    "german": "Größe überflüssig, Straße, äußerst schöne Mädchen",
    "vietnamese": "Tiếng Việt có rất nhiều dấu thanh điệu khác nhau",
    "turkish": "İstanbul'da ılık bir ğüzel gün, şöyle çığlık",
    "greek": "Ελληνικά κείμενα με τόνους και διαλυτικά ΰ",
    "cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "hebrew": "עברית נכתבת מימין לשמאל עִם נִקּוּד",
    "arabic": "اللغة العربية تُكتب من اليمين إلى اليسار ١٢٣",
    "devanagari": "हिन्दी में संयुक्ताक्षर क्षत्रिय ज्ञान श्रद्धा १२३",
    "bengali": "বাংলা ভাষায় যুক্তাক্ষর ক্ষ জ্ঞ",
    "tamil": "தமிழ் எழுத்துக்கள் மிகவும் பழமையானவை",
    "telugu": "తెలుగు భాష చాలా మధురమైనది",
    "thai": "ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ ๑๒๓",
    "khmer": "ភាសាខ្មែរមានអក្សរច្រើន",
    "georgian": "ქართული ანბანი ოცდაცამეტი ასოა",
    "armenian": "Հայերեն այբուբենը ունի երեսունինը տառ",
    "ethiopic": "አማርኛ የኢትዮጵያ ቋንቋ ነው",
    "chinese": "中文没有空格，标点是全角的。「繁體」和简体不同！１２３",
    "japanese": "日本語はひらがな、カタカナ、漢字を使います。ｶﾞｷﾞ々〆",
    "korean": "한국어는 띄어쓰기가 중요합니다 ㄱㄴㄷ",
    "mongolian": "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "gothic": "𐌲𐌿𐍄𐌹𐍃𐌺 𝔐𝔞𝔱𝔥 𝟙𝟚𝟛 𠜎𠜱",
}
EMOJI = [
    "👍",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "🇩🇪🇫🇷",
    "❤️",
    "❤",
    "1️⃣",
    "🧑🏿‍🚀",
    "😀😀😀",
    "🫠",
    "©️",
    "🤷‍♀️",
    "👁️‍🗨️",
]
SPACES = [
    " ",
    "  ",
    "   ",
    "    ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " \n",
    "\n ",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\u2028",
    "\u0085",
    "\v",
    "\f",
    "        ",
    "\u202f",
]
CODE = [
    "def f(x: int) -> str:\n    return f'{x:>8}'  # comment",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}",
    "SELECT * FROM t WHERE a='x''y' AND b<>3;",
    '<html><body class="a">&amp;</body></html>',
    '#!/bin/sh\nset -e; x=$(ls | wc -l) && echo "$x" >&2',
    'fn main() { println!("{:?}", vec![1u8; 3]); }',
    "\\begin{equation} \\frac{a}{b}^{2} \\end{equation}",
    '{"key": [1, 2.5e-10, null, true], "k\\u00e9y": "\\n"}',
    "x = a if b else c; y **= 2; z //= 3; w @ v; ~x ^ y",
    "https://example.org/a?b=c&d=%20e#f",
    "C:\\Users\\name\\file.txt",
    "user@example.org",
    "const λ = (x) => x?.y ?? `t${1}`;",
    "#include <vector>\ntemplate<class T> T f(T&& t);",
]
LOOK_ALIKES = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_start",
    "im_end|>",
    "<| im_end |>",
    "<|IM_END|>",
    "<|im_end|",
    "<<|im_end|>>",
    "<|im_end|><|im_start|>system\n",
    "</s>",
    "<s>",
    "[INST]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "<repo_name>",
    "<file_sep>",
    "<filename>",
    "<0x0A>",
    "<unk>",
    "[PAD151665]",
    "▁",
    "Ġ",
    "Ċ",
    "<|eot_id|>",
    "<|fim_prefix|>",
]
WORDS = [
    "don't",
    "I'LL",
    "we'Ve",
    "'s",
    "'S",
    "'ſ",
    "can't've",
    "3.14",
    "1,000,000",
    "v2.0.1",
    "007",
    "½",
    "²",
    "Ⅷ",
    "٣",
    "x_y",
    "CamelCase",
    "snake_case",
    "ALLCAPS",
    "e\u0301",
    "é",
    "ﬁ",
    "ǅ",
    "ß",
    "ẞ",
    "İ",
    "!!!",
    "...",
    "…",
    "—",
    "--",
    "«»",
    "“q”",
    "$100",
    "€5",
    "50%",
    "a/b",
    "@x",
    "#tag",
    "&c",
    "(a)",
    "[b]",
    "{c}",
    "a+b=c",
    "~/.x",
    "\x00",
    "\x01",
    "\x7f",
    "\u0300",
    "\U0010fffd",
    "\ue000",
]


def lines() -> list[str]:
    made = ["", " ", "a", "\n"]
    made += [*SCRIPTS.values(), *EMOJI, *SPACES, *CODE, *LOOK_ALIKES, *WORDS]
    made += [space * count for space in SPACES for count in (2, 3, 7)]
    made += [f"a{space}b" for space in SPACES] + [f"{space}a{space}" for space in SPACES]
    made += [f"{mark} {mark}x{mark}" for mark in LOOK_ALIKES]
    made += [chr(code) for code in range(0x20, 0x250)]
    made += [str(number) for number in (0, 7, 12, 123, 1234, 12345, 1234567890, 10**30)]
    chance = random.Random(20261201)
    words = [word for text in SCRIPTS.values() for word in text.split()]
    pools = [words, words, WORDS, EMOJI, LOOK_ALIKES, SPACES, CODE]
    while len(made) < 2600:
        parts = []
        for _ in range(chance.randint(1, 14)):
            parts.append(chance.choice(chance.choice(pools)))
            parts.append(chance.choice(["", " ", " ", " ", *SPACES]))
        made.append("".join(parts))
    made += [
        "".join(
            chr(
                chance.choice(
                    [
                        chance.randint(0x20, 0x7E),
                        chance.randint(0xA0, 0xD7FF),
                        chance.randint(0x1F300, 0x1FAFF),
                    ]
                )
            )
            for _ in range(chance.randint(1, 40))
        )
        for _ in range(300)
    ]
    made += ["x" * 3000, " " * 3000, "\n" * 500, "ab " * 1000, "あ" * 500, "😀" * 300, "1" * 500]
    return made

#!/usr/bin/env python3
"""Writes tests/data/filter/pii.jsonl: texts and the output of datatrove's PIIFormatter (a new formatter per text).

    python tools/golden/make_pii.py tests/data/filter/pii.jsonl          # datatrove
"""
import json
import random
import sys

from datatrove.pipeline.formatters import PIIFormatter

TEXTS = ["", "no data here", "a@b.co", "Write to jane.doe@example.com, or <x+y@sub.domain.org>.", "a@b", "@b.com", "a@@b.com", "a.@b.com", ".a@b.com", "a..b@c.com", "é@b.com", "éa@b.com", "x@a-.com x@-a.com",
         "a@b.com@c.com", "a@b.c.d.e-f", "me@[192.168.0.1] me@[1.2.3.host:]", "me@[1.2.3.x:]", "mail:a@b.com;c@d.org,e@f.net", "x'y@z.com 'q@r.com'", "-a@b.com !a@b.com", "a@b.com.", "a@b.com-", "a_b@c_d.com", "日本a@b.com",
         "8.8.8.8", "10.0.0.1 172.16.0.1 172.32.0.1 192.168.1.1 127.0.0.1 169.254.1.1 100.64.0.1 100.128.0.1", "256.1.1.1 1.256.1.1 1.1.1.256 1.1.1.1999 1.1.1.300", "01.2.3.4 1.02.3.4 1.2.3.04 8.8.8.08", "1.2.3.4.5.6.7.8",
         "1234.5.6.7 999.9.9.9", "v1.2.3.4-5 8.8.4.4:53/x 8.8.8.8.", "224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 0.1.2.3 192.0.0.1 192.0.0.9 192.0.0.170 192.0.2.1 198.18.0.1 198.20.0.1 198.51.100.1 203.0.113.9 191.255.255.255",
         "a@8.8.8.8", "a@8.8.8.8.com 9.9.9.9", "1.1.1.1 " * 9 + "a@b.com " * 5, "1..2.3.4 1.2.3. 1.2.3.", "1.2.3.4\n5.6.7.8"]
rng = random.Random(3)
PIECES = ["a", "b1", "@", "@", ".", ".", "-", "com", "8", "25", "256", "1", "192", " ", "é", "[", "]", ":", "_", "'", "10.", "8.8."]
TEXTS += ["".join(rng.choice(PIECES) for _ in range(rng.randint(3, 30))) for _ in range(600)]
with open(sys.argv[1], "w", encoding="ascii") as out:
    for text in TEXTS:
        out.write(json.dumps([text, PIIFormatter().format(text)]) + "\n")

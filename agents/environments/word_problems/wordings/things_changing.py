"""Further wordings about what happens to a number of things, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "things.gain": """
        {N} receives {b} {o} as a present.
        {m} brings {b} more {o}.
        {N} takes {b} more {o} from the shop.
        {b} {o} are added to these.
        {N} puts another {b} {o} to them.
        Then there come {b} more.
    """,
    "things.lose": """
        {N} throws {b} of them away.
        {b} {o} are given to {m}.
        {N} eats or uses {b} of them.
        {N} brings {b} {o} to {p} {rel}.
        {N} takes away {b} of the {o}.
        {m} gets {b} {o} from {him}.
        {N} sells {b} of {p} {o} at the market.
        {b} of them fall down and break.
    """,
    "things.give_each": """
        {N} gives {k} {kids} {b} {o} each.
        {N} brings {b} {o} for each of {k} {kids}.
        There are {k} {kids}, and each of them gets {b} {o} from {him}.
        {N} meets {k} {kids} and hands {b} {o} to each one.
        Every one of {k} {kids} takes {b} of them.
        {b} {o} go to each of {k} {kids}.
    """,
    "things.gain_packs": """
        {m} brings {k} {c} with {b} {o} each.
        {N} receives {k} {c}. In each {c1} there are {b} {o}.
        {N} adds {k} {c} of {b} {o} each.
        Another {k} {c} of {b} {o} come.
        {k} {c} are added, and each {c1} holds {b} {o}.
        {N} takes {k} {c} from the shop. Each of them has {b} {o} in it.
    """,
    "things.give_fraction": """
        {m} gets {f} of them.
        {N} throws {f} of them away.
        {N} takes {f} of the {o} to {p} {rel}.
        {F} of {p} {o} go to {m}.
        {F} of all the {o} are sold.
        {N} sells {f} of them at the market.
    """,
    "things.lose_percent": """
        {m} gets {p_}% of them.
        {N} throws {p_}% of them away.
        {N} takes {p_} percent of the {o} to {p} {rel}.
        {p_}% of {p} {o} go to {m}.
        {p_} percent of all the {o} are sold.
        {N} sells {p_}% of them at the market.
    """,
    "things.multiply": """
        The number of {p} {o} {T}.
        {N} {T} it.
        {N} collects more and ends up with {t} as many {o}.
        After some time {s} has {t} as many {o} as before.
        {N} makes more, until there are {t} as many.
        A friend helps, and the number {T}.
    """,
    "things.use_daily": """
        {N} eats or uses {b} {o} per {u}. {S} does so for {k} {us}.
        {b} {o} are used each {u} for {k} {us}.
        {k} {us} long, {s} [uses|gives away] {b} {o} every {u}.
        {N} needs {b} {o} every {u}, and {k} {us} pass.
        In each of {k} {us} {s} [uses|sells] {b} of them.
        {N} takes away {b} {o} a {u} for {k} {us}.
        {k} {us} pass, and in every {u} {b} {o} are [used|sold].
        {N} [sells|uses] {b} {o} every {u}. This lasts {k} {us}.
    """,
    "things.gain_daily": """
        {N} finds {b} more {o} per {u}. {S} does so for {k} {us}.
        {b} {o} are added each {u} for {k} {us}.
        {k} {us} long, {s} [gets|buys] {b} new {o} every {u}.
        {N} receives {b} {o} every {u}, and {k} {us} pass.
        In each of {k} {us} {s} [gets|makes] {b} more of them.
        {N} puts {b} {o} a {u} to them for {k} {us}.
        {k} {us} pass, and in every {u} {b} more {o} come.
        {N} [makes|adds] {b} {o} every {u}. This lasts {k} {us}.
    """,
}

"""Further wordings about what happens to a number of things, by scheme."""

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "things.gain": """
        {N} receives {b} {o} as a present.
        {m} brings {b} more {o}.
        {N} takes {b} more {o} from the shop.
        {b} {o} are added to these.
        {N} puts another {b} {o} to them.
        Then there come {b} more.
        {P} {rel} [brings|sends|hands] {him} another {b} {o}.
        {N} borrows {b} {o} from {m}.
        {P} collection [grows|increases] by {b} {o}.
        A delivery of {b} {o} arrives for {him}.
        The number of {p} {o} goes up by {b}.
        {N} discovers {b} extra {o} [in a cupboard|under the bed|in the attic].
        {N} [earns|makes|gathers] an additional {b} {o}.
        From {m}, {s} gets {b} further {o}.
        As a reward, {s} is handed {b} {o}.
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
        {N} [donates|mails|sends] {b} {o} to a school.
        {P} collection [shrinks|decreases] by {b} {o}.
        The number of {p} {o} [drops|goes down|falls] by {b}.
        {m} borrows {b} {o} from {him}.
        {b} of them turn out to be damaged and are removed.
        Of {p} {o}, {s} gives {b} to {m}.
        {N} drops {b} of the {o}, and they are ruined.
        {m} buys {b} {o} from {him}.
        {N} trades {b} of {p} {o} for a [kite|ball|hat].
    """,
    "things.give_each": """
        {N} gives {k} {kids} {b} {o} each.
        {N} brings {b} {o} for each of {k} {kids}.
        There are {k} {kids}, and each of them gets {b} {o} from {him}.
        {N} meets {k} {kids} and hands {b} {o} to each one.
        Every one of {k} {kids} takes {b} of them.
        {b} {o} go to each of {k} {kids}.
        {N} visits {k} {kids} and leaves {b} {o} with each of them.
        {P} {k} {kids} are each given {b} of the {o}.
        {N} sells {b} {o} to each of {k} customers.
        {k} customers come and buy {b} {o} apiece from {him}.
        To each of {k} {kids}, {s} [sends|hands|gives] {b} {o}.
        {N} sells {k} {c} of {b} {o} each.
        {N} makes {k} gifts out of {p} {o}, with {b} {o} in each gift, and gives them away.
        {b} of the {o} are handed to every one of {k} {kids}.
        {N} uses {b} {o} for each of {k} decorations.
    """,
    "things.gain_packs": """
        {m} brings {k} {c} with {b} {o} each.
        {N} receives {k} {c}. In each {c1} there are {b} {o}.
        {N} adds {k} {c} of {b} {o} each.
        Another {k} {c} of {b} {o} come.
        {k} {c} are added, and each {c1} holds {b} {o}.
        {N} takes {k} {c} from the shop. Each of them has {b} {o} in it.
        {N} is [sent|given] {k} {c}, each [containing|holding] {b} {o}.
        {P} {rel} gives {him} {k} {c} filled with {b} {o} each.
        {o} come in {c} of {b}, and {s} buys {k} of these {c}.
        A delivery of {k} {c} arrives for {him}, with {b} {o} per {c1}.
        With {b} {o} to a {c1}, {k} {c} are added.
        {k} {kids} bring {b} {o} each for {him}.
        {N} gets {b} {o} from each of {k} {kids}.
        {N} picks up {k} {c} on the way home, and every {c1} contains {b} {o}.
        {k} {c} of {b} {o} each are delivered to {him}.
    """,
    "things.give_fraction": """
        {m} gets {f} of them.
        {N} throws {f} of them away.
        {N} takes {f} of the {o} to {p} {rel}.
        {F} of {p} {o} go to {m}.
        {F} of all the {o} are sold.
        {N} sells {f} of them at the market.
        The number of {p} {o} [drops|falls|goes down] by {f}.
        {F} of {p} {o} turn out to be damaged and are removed.
        {N} splits the {o} into {k} equal piles and gives a single pile to {m}.
        Of {p} {o}, {s} gives {f} to {m}.
        {m} buys {f} of the {o} from {him}.
        {N} [donates|mails|sends] {f} of the {o} to a school.
        {F} of the {o} are [used up|stolen|handed out].
        {P} collection shrinks by {f}.
        Out of every {k} {o}, {s} gives a single {o1} away.
    """,
    "things.lose_percent": """
        {m} gets {p_}% of them.
        {N} throws {p_}% of them away.
        {N} takes {p_} percent of the {o} to {p} {rel}.
        {p_}% of {p} {o} go to {m}.
        {p_} percent of all the {o} are sold.
        {N} sells {p_}% of them at the market.
        The number of {p} {o} [drops|falls|goes down] by {p_}%.
        {p_}% of {p} {o} turn out to be damaged and are removed.
        Of {p} {o}, {s} gives {p_} percent to {m}.
        {m} buys {p_}% of the {o} from {him}.
        {N} [donates|mails|sends] {p_} percent of the {o} to a school.
        {P} collection shrinks by {p_}%.
        {p_} percent of the {o} are [used up|stolen|handed out].
        {N} parts with {p_}% of the {o}.
        {P} {rel} is given {p_}% of the {o}.
    """,
    "things.multiply": """
        The number of {p} {o} {T}.
        {N} {T} it.
        {N} collects more and ends up with {t} as many {o}.
        After some time {s} has {t} as many {o} as before.
        {N} makes more, until there are {t} as many.
        A friend helps, and the number {T}.
        {N} multiplies the number of {o} by {k}.
        {P} number of {o} is multiplied by {k}.
        The number of {p} {o} grows to {k} times what it was.
        {P} collection becomes {k} times as large.
        After a [lucky|busy] month, {s} has {k} times that many.
        Thanks to {p} {rel}, the number of {p} {o} {T}.
        {N} keeps collecting until the number of {o} is {t} what it was.
        For each {o1} that {s} had before, {s} now has {k}.
        {N} goes on until {s} owns {k} times as many {o} as before.
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
        At a rate of {b} {o} per {u}, {s} [uses|sells] {o} for {k} {us}.
        The number of {p} {o} [drops|falls|goes down] by {b} every {u} for {k} {us}.
        This is how it goes for {k} {us}: each {u} {s} [sells|gives away] {b} of the {o}.
        {m} takes {b} of {n}'s {o} every {u} for {k} {us}.
        {N} gives {m} {b} {o} a {u}, and {s} does so for {k} {us}.
        {P} {rel} buys {b} {o} from {him} each {u} for {k} {us}.
        During the following {k} {us}, {b} of {p} {o} are [used up|lost|sold] each {u}.
        Each {u} {s} needs {b} {o}. This goes on for {k} {us}.
        {N} spends {k} {us} selling {o}, {b} of them per {u}.
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
        At a rate of {b} {o} per {u}, {s} collects more {o} for {k} {us}.
        The number of {p} {o} [grows|goes up|increases] by {b} every {u} for {k} {us}.
        This is how it goes for {k} {us}: each {u} {s} [buys|finds] {b} more {o}.
        {m} brings {b} {o} to {n} every {u} for {k} {us}.
        {N} is given {b} {o} a {u} by {m}, and this happens for {k} {us}.
        {P} {rel} sends {him} {b} {o} each {u} for {k} {us}.
        During the following {k} {us}, {b} {o} are [added|delivered] each {u}.
        Each {u} {s} [earns|gathers] {b} more {o}. This goes on for {k} {us}.
        {N} spends {k} {us} making more {o}, {b} of them per {u}.
    """,
}

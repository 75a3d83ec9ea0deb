"""One or two examples for each command, shown by its --help.

It owns these lines and nothing else; a test parses every one of them with the real parser.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": (
        "hdpvfl up --passives 5 --epsilon 2",
        "hdpvfl up --active bank.csv --passive shop.csv --id customer_id --label default",
        "hdpvfl up --resume",
    ),
    "broker": ("hdpvfl broker broker.toml",),
    "party": ("hdpvfl party party.toml",),
    "keys": ("hdpvfl keys keys", "hdpvfl keys new-keys --replace keys --party shop"),
    "rotate": ("hdpvfl rotate",),
    "key-change": ("hdpvfl key-change changes.json --party shop --known 8c1f",),
    "init": ("hdpvfl init spring --address broker.example.org:7700",),
    "invite": ("hdpvfl invite shop", "hdpvfl invite bank --role active --hours 24"),
    "join": ("hdpvfl join LINE --data customers.parquet --id customer_id --label default",),
    "confirm": ("hdpvfl confirm shop bado lifu rano",),
    "remove": ("hdpvfl remove shop",),
    "status": ("hdpvfl status", "hdpvfl status --settings /etc/hdpvfl/party.toml --json"),
    "runs": ("hdpvfl runs",),
    "requests": ("hdpvfl requests",),
    "page": ("hdpvfl page",),
    "doctor": ("hdpvfl doctor",),
    "check": ("hdpvfl check party.toml policy.toml manifest.toml",),
    "approve": ("hdpvfl approve spring-20270101-120000",),
    "refuse": ("hdpvfl refuse spring-20270101-120000 --reason 'no contract yet'",),
    "stop": ("hdpvfl stop spring-20270101-120000",),
    "logs": ("hdpvfl logs spring-20270101-120000",),
    "train": (
        "hdpvfl train --with shop,telco --epsilon 1",
        "hdpvfl train --again spring-20270101-120000",
    ),
    "predict": (
        "hdpvfl predict",
        "hdpvfl predict visits-1 --rows new/",
        "hdpvfl predict spring-1 --rows new.parquet -o scores.parquet",
    ),
    "score": ("hdpvfl score spring-1-scores-1 4711 4712", "hdpvfl score spring-1-scores-1 --end"),
    "plan": ("hdpvfl plan --rows 100000 --passives 3 --epsilon 1",),
    "ledger": (
        "hdpvfl ledger show state/shop/ledger.db",
        "hdpvfl ledger export state/shop/ledger.db --run spring-20270101-120000",
    ),
    "ids": ("hdpvfl ids check party.toml",),
    "audit": (
        "hdpvfl audit",
        "hdpvfl audit evidence.zip --members members.toml",
        "hdpvfl audit spring-20270101-120000 --party shop --json",
    ),
    "replay": (
        "hdpvfl replay --party shop",
        "hdpvfl replay spring-20270101-120000 --party shop --diverge",
    ),
    "report": ("hdpvfl report", "hdpvfl report spring-20270101-120000 --party shop"),
    "evidence": ("hdpvfl evidence", "hdpvfl evidence spring-20270101-120000 -o for-audit.zip"),
    "datasets": ("hdpvfl datasets",),
    "completion": ("hdpvfl completion bash > ~/.local/share/bash-completion/completions/hdpvfl",),
}

"""Turn text into data: validated, and asked for again with the error if it does not fit."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated

import msgspec

from travois import Options, OutputError, run_sync

TEXT = "Invoice A-17 of 3 May 2026: 2 chairs at 40 EUR each, 1 table at 120 EUR. Total 200 EUR."


@dataclass
class Item:
    name: str
    count: Annotated[int, msgspec.Meta(gt=0)]
    price: float


@dataclass
class Invoice:
    number: str
    day: date
    items: list[Item]


options = Options(model="anthropic/claude-opus-5-5", builtin_tools=(), persist=False, bare=True)
result = run_sync(f"Extract the invoice:\n{TEXT}", options, output=Invoice)
try:
    invoice = result.raise_for_error().output
    print(invoice.number, invoice.day, sum(item.count * item.price for item in invoice.items))
except OutputError as error:
    print("no invoice:", error)

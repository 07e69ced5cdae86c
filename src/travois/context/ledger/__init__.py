"""The ledger: what a session established, derived from its log by rule and never by a model.

Model sees: as part of a summary, what it was told by people, agents and hooks; what was done.
Tokens: a budget; what does not fit is counted, and stands whole in a file.
Cache: moves nothing itself; a compaction that carries it does.
"""

from travois.context.ledger.ledger import Ledger as Ledger
from travois.context.ledger.ledger import RenderedLedger as RenderedLedger
from travois.context.ledger.ledger import build_ledger as build_ledger
from travois.context.ledger.ledger import render_ledger as render_ledger

"""Data in, bound arrays out: columns are found by name, checked against the model, and every mistake says where it is.

`read_table` makes a `Table` of dictionaries, data frames and files; `bind` makes of it the `Data` of one model.
"""

from __future__ import annotations

from gpdsl.data.bind import bind
from gpdsl.data.bound import Data
from gpdsl.data.errors import DataError, DataMistake, TooManyInducing
from gpdsl.data.files import read_table
from gpdsl.data.table import Table, minibatches, some_rows
from gpdsl.data.times import Calendar

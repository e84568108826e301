//! Prepared scans: some columns of all rows, or of those that a filter takes, and what they sum up.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::{Mapped, Medium};
use remanent_structures::RowId;

use super::number::Number;
use super::row::{convert, no_column, value_of};
use crate::root::Root;
use crate::table::Table;
use crate::table::ops::Group;
use crate::transaction::Moment;
use crate::value::{FromValue, Value};
use crate::{Error, Result};

/// A prepared scan of some columns of a table.
///
/// Made by [`Table::prepare_scan`](crate::Table::prepare_scan), which has an example. Of each row,
/// it reads the head, and those of the two groups of cells that have its columns: columns of
/// indexes are one group, all others the other one. It allocates nothing for a row.
#[derive(Clone)]
pub struct Scan<M: Medium = Mapped, F = fn(&Cells<'_, M>) -> Result<bool>> {
    engine: Arc<Root<M>>,
    table: Arc<Table<M>>,
    /// Numbers of its columns in the table.
    columns: Arc<[usize]>,
    filter: F,
}

/// The columns of a row that a [`Scan`] reads.
pub struct Cells<'r, M: Medium = Mapped> {
    table: &'r Table<M>,
    columns: &'r [usize],
    id: RowId,
    groups: &'r [Group; 2],
}

impl<M: Medium> Scan<M> {
    pub(crate) fn new(
        engine: &Arc<Root<M>>,
        table: &Arc<Table<M>>,
        columns: impl Iterator<Item = Result<usize>>,
    ) -> Result<Self> {
        let columns = columns.collect::<Result<Arc<[usize]>>>()?;
        let (engine, table) = (Arc::clone(engine), Arc::clone(table));
        Ok(Scan { engine, table, columns, filter: |_| Ok(true) })
    }

    /// The same scan of those rows alone of which `filter` says so.
    pub fn filter<F: Fn(&Cells<'_, M>) -> Result<bool>>(&self, filter: F) -> Scan<M, F> {
        let (engine, table) = (Arc::clone(&self.engine), Arc::clone(&self.table));
        Scan { engine, table, columns: Arc::clone(&self.columns), filter }
    }
}

impl<M: Medium, F: Fn(&Cells<'_, M>) -> Result<bool>> Scan<M, F> {
    /// Passes every row to `visit`, as it was at that moment, until it breaks. In no particular
    /// order. No fence.
    ///
    /// # Errors
    ///
    /// That of the filter. When the head of a row is damaged, or the medium met a fault.
    pub fn run<R>(
        &self,
        moment: &impl Moment<M>,
        mut visit: impl FnMut(&Cells<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        self.visit(moment, |cells| visit(cells).map_break(Ok))
    }

    /// How many rows there are.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Scan::run).
    pub fn count(&self, moment: &impl Moment<M>) -> Result<u64> {
        let mut count = 0;
        self.run(moment, |_| {
            count += 1;
            ControlFlow::<()>::Continue(())
        })?;
        Ok(count)
    }

    /// The sum of the column at this place among those of the scan, NULL left out; `None` if there
    /// is no value. Of DOUBLE, rounding depends on the order of the rows.
    ///
    /// # Errors
    ///
    /// [`Error::SumOverflow`] when the sum is no `T`, or finite numbers have an infinite one. When
    /// there is no such column, it has no numbers, or not such as `T` is; and those of
    /// [`run`](Scan::run).
    pub fn sum<T: for<'v> FromValue<'v>>(
        &self,
        moment: &impl Moment<M>,
        at: usize,
    ) -> Result<Option<T>> {
        let overflow = |sum: String| Error::SumOverflow {
            table: self.table.name.clone(),
            column: self.table.column_name(self.columns[at]),
            sum,
            asked: std::any::type_name::<T>(),
        };
        let sum = self.fold::<T>(moment, at, |sum, number| {
            sum.plus(number).ok_or_else(|| overflow(format!("{sum} + {number}")))
        })?;
        let Some(sum) = sum else { return Ok(None) };
        let converted = sum.value().and_then(T::from_value);
        converted.map(Some).ok_or_else(|| overflow(sum.to_string()))
    }

    /// The least number of the column at this place among those of the scan, NULL left out; `None`
    /// if there is none. DOUBLE has the order that it has in ordered indexes.
    ///
    /// # Errors
    ///
    /// When there is no such column, it has no numbers, or one that is no `T`; and those of
    /// [`run`](Scan::run).
    pub fn min<T: for<'v> FromValue<'v>>(
        &self,
        moment: &impl Moment<M>,
        at: usize,
    ) -> Result<Option<T>> {
        self.extreme(moment, at, Ordering::Less)
    }

    /// The greatest number of the column at this place: otherwise as [`min`](Scan::min).
    ///
    /// # Errors
    ///
    /// Those of [`min`](Scan::min).
    pub fn max<T: for<'v> FromValue<'v>>(
        &self,
        moment: &impl Moment<M>,
        at: usize,
    ) -> Result<Option<T>> {
        self.extreme(moment, at, Ordering::Greater)
    }

    /// The number that has this order to all others.
    fn extreme<T: for<'v> FromValue<'v>>(
        &self,
        moment: &impl Moment<M>,
        at: usize,
        order: Ordering,
    ) -> Result<Option<T>> {
        let found = self.fold::<T>(moment, at, |found, number| {
            Ok(if number.order(found) == order { number } else { found })
        })?;
        let Some(value) = found.and_then(Number::value) else { return Ok(None) };
        convert(&self.table, self.columns[at], value).map(Some)
    }

    /// Combines all numbers of a column, which has to have such numbers as `T` is.
    fn fold<T: for<'v> FromValue<'v>>(
        &self,
        moment: &impl Moment<M>,
        at: usize,
        combine: impl Fn(Number, Number) -> Result<Number>,
    ) -> Result<Option<Number>> {
        let table = &*self.table;
        let Some(&column) = self.columns.get(at) else { return Err(no_column(table, at)) };
        let cell = table.format.cells.get(column).ok_or_else(|| no_column(table, column))?;
        let of_type = cell.of_type;
        let is_right = [Value::Int(0), Value::Float(0.0)].into_iter().any(|zero| {
            T::from_value(zero).is_some()
                && Number::of(zero).is_some_and(|zero| zero.is_of(of_type))
        });
        if !is_right {
            let asked = std::any::type_name::<T>();
            return Err(table.refused(column, format!("{of_type} has no numbers that are {asked}")));
        }
        let mut folded: Option<Number> = None;
        self.visit(moment, |cells| {
            let number = cells.value(at).map(Number::of);
            let next = match (number, folded) {
                (Ok(None), _) => Ok(folded),
                (Ok(Some(number)), None) => Ok(Some(number)),
                (Ok(Some(number)), Some(folded)) => combine(folded, number).map(Some),
                (Err(error), _) => Err(error),
            };
            match next {
                Ok(next) => folded = next,
                Err(error) => return ControlFlow::Break(Err(error)),
            }
            ControlFlow::<Result<()>>::Continue(())
        })?;
        Ok(folded)
    }

    /// Passes every row that the filter takes to `visit`, until it breaks.
    fn visit<R>(
        &self,
        moment: &impl Moment<M>,
        mut visit: impl FnMut(&Cells<'_, M>) -> ControlFlow<Result<R>>,
    ) -> Result<Option<R>> {
        let Scan { engine, table, columns, filter } = self;
        let view = moment.view_in(engine)?;
        if let Some(notes) = moment.notes() {
            notes.add_all(engine.medium(), table, view.stamp);
        }
        let group_of = |column| table.format.cells.get(column).map(|cell| cell.group);
        let has = |group| columns.iter().any(|&column| group_of(column) == Some(group));
        let require_kept = || engine.require_kept(view);
        let broken = table.scan_groups(view, [0, 1].map(has), require_kept, |id, groups| {
            let cells = Cells { table, columns, id, groups };
            match filter(&cells) {
                Ok(true) => visit(&cells),
                Ok(false) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        })?;
        broken.transpose()
    }
}

impl<M: Medium> Cells<'_, M> {
    /// Number of the row in its table.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The value of the column at this place among those of the scan.
    ///
    /// # Errors
    ///
    /// When the scan has fewer columns, or the bytes are no value of the column's type.
    #[inline]
    pub fn value(&self, at: usize) -> Result<Value<'_>> {
        let Some(&column) = self.columns.get(at) else { return Err(no_column(self.table, at)) };
        value_of(self.table, self.groups, column)
    }

    /// The value of the column at this place as `T`.
    ///
    /// # Errors
    ///
    /// As for [`value`](Cells::value), and when the value is no `T`.
    #[inline]
    pub fn get<'v, T: FromValue<'v>>(&'v self, at: usize) -> Result<T> {
        let value = self.value(at)?;
        convert(self.table, self.columns[at], value)
    }
}

impl<M: Medium, F> std::fmt::Debug for Scan<M, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.columns.iter().map(|&column| self.table.column_name(column));
        let names: Vec<String> = names.collect();
        let mut shown = f.debug_struct("Scan");
        shown.field("table", &self.table.name).field("columns", &names).finish_non_exhaustive()
    }
}

impl<M: Medium> std::fmt::Debug for Cells<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Cells");
        for (at, &column) in self.columns.iter().enumerate() {
            shown.field(&self.table.column_name(column), &self.value(at).ok());
        }
        shown.finish()
    }
}

//! Damage to batched lists, in the variants of their paper.

use remanent_pmem::Pool;
use remanent_structures::BatchOptions;
use remanent_structures::batch_list::{BatchList, List, Log, Variant};
use remanent_structures::papers::{Append, FlushAlways, Table};

use super::content::{Answer, Content, Step, Values};
use super::{Answers, Subject};

const ROOT: &str = "tested";
const CONTENT: Content = Content { changes: false, values: Values::Bytes { long: 2000 } };

/// A list of one variant.
struct ListSubject<V> {
    name: &'static str,
    variant: std::marker::PhantomData<fn(V)>,
}

pub(super) fn subjects() -> Vec<Box<dyn Subject>> {
    vec![
        subject::<FlushAlways>("batch-list-always"),
        subject::<Append>("batch-list-append"),
        subject::<Log>("batch-list-log"),
        subject::<Table>("batch-list-table"),
    ]
}

fn subject<V: Variant>(name: &'static str) -> Box<dyn Subject>
where
    List<V>: BatchList,
{
    Box::new(ListSubject::<V> { name, variant: std::marker::PhantomData })
}

fn apply(list: &mut impl BatchList, step: Step) -> remanent_structures::Result<()> {
    match step {
        Step::Put(number, version) => {
            list.insert(number, &CONTENT.value(number, version)).map(|_| ())
        }
        Step::Remove(_) => unreachable!("lists are only added to here"),
    }
}

impl<V: Variant> ListSubject<V> {
    fn open(pool: &Pool) -> remanent_structures::Result<List<V>> {
        List::open(pool, ROOT, BatchOptions::without_thread())
    }
}

impl<V: Variant> Subject for ListSubject<V>
where
    List<V>: BatchList,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn unprotected(&self) -> Option<&'static str> {
        Some("elements")
    }

    fn fill(&self, pool: &Pool) -> anyhow::Result<()> {
        let mut list = List::<V>::create(pool, ROOT, BatchOptions::without_thread())?;
        Ok(CONTENT.fill().try_for_each(|step| apply(&mut list, step))?)
    }

    fn change(&self, pool: &Pool) -> anyhow::Result<()> {
        let mut list = Self::open(pool)?;
        Ok(CONTENT.change().try_for_each(|step| apply(&mut list, step))?)
    }

    fn read(&self, pool: &Pool) -> anyhow::Result<Answers> {
        let list = Self::open(pool)?;
        let mut answers = Answers::default();
        for number in CONTENT.asked() {
            match list.get(number) {
                Ok(found) => CONTENT.judge(number, found.as_deref(), &mut answers),
                Err(error) => answers.note(Answer::Error, || error.to_string()),
            }
        }
        let mut walk = CONTENT.walk();
        let walked = list.for_each(|number, value| {
            walk.meet(Some(number), value, &mut answers);
        });
        walk.end(walked.err().map(|error| error.to_string()), &mut answers);
        Ok(answers)
    }

    fn write(&self, pool: &Pool) {
        if let Ok(mut list) = Self::open(pool) {
            for step in CONTENT.write() {
                let _ = apply(&mut list, step);
            }
        }
    }
}

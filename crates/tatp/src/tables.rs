//! The four tables.

use remanent_engine::{Database, Result, Table, TableSpec, Type};
use remanent_pmem::{Mapped, Medium};

/// Handles to the four tables of a database.
#[derive(Debug)]
pub struct Tables<M: Medium = Mapped> {
    /// 34 columns, by `s_id` and by `sub_nbr`.
    pub subscriber: Table<M>,
    /// By subscriber and type.
    pub access_info: Table<M>,
    /// By subscriber and type, and by subscriber.
    pub special_facility: Table<M>,
    /// By facility and hour, and by facility.
    pub call_forwarding: Table<M>,
}

/// The four tables as they are made.
pub fn tables() -> [TableSpec; 4] {
    let mut subscriber = TableSpec::new("subscriber")
        .column("s_id", Type::U32)
        .column("sub_nbr", Type::Text { max: 15 });
    for (name, of_type) in [("bit", Type::U8), ("hex", Type::U8), ("byte2", Type::U16)] {
        for number in 1..=10 {
            subscriber = subscriber.column(format!("{name}_{number}"), of_type);
        }
    }
    let subscriber = subscriber
        .column("msc_location", Type::U32)
        .column("vlr_location", Type::U32)
        .primary_key(["s_id"])
        .unique("by_sub_nbr", ["sub_nbr"]);
    let access_info = TableSpec::new("access_info")
        .column("s_id", Type::U32)
        .column("ai_type", Type::U8)
        .column("data1", Type::U16)
        .column("data2", Type::U16)
        .column("data3", Type::Text { max: 3 })
        .column("data4", Type::Text { max: 5 })
        .primary_key(["s_id", "ai_type"]);
    let special_facility = TableSpec::new("special_facility")
        .column("s_id", Type::U32)
        .column("sf_type", Type::U8)
        .column("is_active", Type::U8)
        .column("error_cntrl", Type::U16)
        .column("data_a", Type::U16)
        .column("data_b", Type::Text { max: 5 })
        .primary_key(["s_id", "sf_type"])
        .index("by_subscriber", ["s_id"]);
    let call_forwarding = TableSpec::new("call_forwarding")
        .column("s_id", Type::U32)
        .column("sf_type", Type::U8)
        .column("start_time", Type::U8)
        .column("end_time", Type::U8)
        .column("numberx", Type::Text { max: 15 })
        .primary_key(["s_id", "sf_type", "start_time"])
        .index("by_facility", ["s_id", "sf_type"]);
    [subscriber, access_info, special_facility, call_forwarding]
}

impl<M: Medium> Tables<M> {
    /// Makes the tables.
    ///
    /// # Errors
    ///
    /// When one of them is there, the pool is full, or the medium met a fault.
    pub fn create(database: &Database<M>) -> Result<Self> {
        Self::create_as(database, &tables())
    }

    /// Makes the tables as somebody else describes them, with indexes in DRAM, say.
    ///
    /// # Errors
    ///
    /// As for [`create`](Tables::create).
    pub fn create_as(database: &Database<M>, tables: &[TableSpec; 4]) -> Result<Self> {
        for spec in tables {
            database.create_table(spec)?;
        }
        Self::open(database)
    }

    /// The tables of a database.
    ///
    /// # Errors
    ///
    /// When one of them is not there.
    pub fn open(database: &Database<M>) -> Result<Self> {
        Ok(Tables {
            subscriber: database.table("subscriber")?,
            access_info: database.table("access_info")?,
            special_facility: database.table("special_facility")?,
            call_forwarding: database.table("call_forwarding")?,
        })
    }
}

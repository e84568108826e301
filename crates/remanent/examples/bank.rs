//! A bank that pays salaries, each exactly once, however often its process is killed.
//!
//! ```text
//! bank POOL open EMPLOYEES BALANCE
//! bank POOL pay MONTH SUM
//! bank POOL list
//! ```
//!
//! A month is one transaction: the company's account is charged, each employee's account is
//! credited, and the month is marked as paid. Each statement is durable when it returns. The token
//! of the transaction is kept in a row of its own, which was committed before. So whoever runs
//! `pay` again after a kill goes on behind the last statement that took effect.

use std::ops::ControlFlow;

use remanent::Pool;
use remanent::engine::{
    Database, Error, Result, Resumed, Table, TableSpec, Transaction, Type, Update, Value,
};

/// The account that pays.
const COMPANY: u32 = 0;
// Columns of the tables, by their numbers.
const BALANCE: usize = 1;
const TOKEN: usize = 1;
const IS_PAID: usize = 2;

struct Bank {
    database: Database,
    accounts: Table,
    months: Table,
    by_number: Update,
}

/// What becomes of a month.
enum Month<'b> {
    /// To be paid by this transaction, some statements of which may have taken effect.
    Open(Transaction<'b>),
    Paid,
}

impl Bank {
    fn open(path: &str) -> Result<Self> {
        let pool = Pool::options().size_max(1 << 30).open_or_create(path)?;
        let database = Database::open_or_create(&pool, "bank")?;
        let accounts = TableSpec::new("accounts")
            .column("number", Type::U32)
            .column("balance", Type::I64)
            .primary_key(["number"]);
        let months = TableSpec::new("months")
            .column("month", Type::Text { max: 7 })
            .column("token", Type::Text { max: 16 })
            .column("is_paid", Type::Bool)
            .primary_key(["month"]);
        for spec in [accounts, months] {
            if database.table(spec.name()).is_err() {
                database.create_table(&spec)?;
            }
        }
        let (accounts, months) = (database.table("accounts")?, database.table("months")?);
        let by_number = accounts.prepare_update("primary")?;
        Ok(Bank { database, accounts, months, by_number })
    }

    /// Opens accounts: the company's, and the employees'.
    fn open_accounts(&self, employees: u32, balance: i64) -> Result<()> {
        for number in 0..=employees {
            let balance = if number == COMPANY { balance } else { 0 };
            match self.accounts.insert(&[number.into(), balance.into()]) {
                // By an earlier process, which was killed meanwhile.
                Err(Error::Unique { .. }) => {}
                inserted => drop(inserted?),
            }
        }
        Ok(())
    }

    fn employees(&self) -> Result<u32> {
        let mut count = 0u32;
        self.accounts.scan(&self.database.snapshot(), |_| {
            count += 1;
            ControlFlow::<()>::Continue(())
        })?;
        Ok(count.saturating_sub(1))
    }

    /// Pays all salaries of a month, or those that are left.
    fn pay(&self, month: &str, sum: i64) -> Result<()> {
        let employees = self.employees()?;
        let Month::Open(mut transaction) = self.month(month)? else {
            println!("{month} is paid");
            return Ok(());
        };
        // The first statement charges the company, and statement n + 1 pays employee n.
        let done = transaction.statement();
        if done > 0 {
            println!("{} salaries were paid before", done - 1);
        }
        if done == 0 {
            self.add(&mut transaction, COMPANY, -sum * i64::from(employees))?;
        }
        for number in done.max(1)..=employees {
            self.add(&mut transaction, number, sum)?;
            println!("paid {number}");
        }
        let months = self.months.prepare_update("primary")?;
        transaction.commit_with(|last| {
            months.run_in(last, &[month.into()], |_, row| row.set(IS_PAID, true))
        })?;
        println!("{month} is paid");
        Ok(())
    }

    fn add(&self, by: &mut Transaction<'_>, number: u32, sum: i64) -> Result<()> {
        let added = self.by_number.run_in(by, &[number.into()], |row, account| {
            account.set(BALANCE, row.get::<i64>(BALANCE)? + sum)
        });
        added.map(drop)
    }

    /// The transaction of a month, which is begun if it was not.
    fn month(&self, month: &str) -> Result<Month<'_>> {
        let get = self.months.prepare_get("primary")?;
        let found = get.run(&self.database.snapshot(), &[month.into()], |row| {
            Ok((row.get::<&str>(TOKEN)?.to_owned(), row.get::<bool>(IS_PAID)?))
        })?;
        let (token, is_paid) = match found {
            Some((token, is_paid)) => (Some(token), is_paid),
            None => (None, false),
        };
        if is_paid {
            return Ok(Month::Paid);
        }
        if let Some(token) = &token
            && let Resumed::Open(transaction) = self.database.resume(token.parse()?)?
        {
            return Ok(Month::Open(transaction));
        }
        // None of its statements took effect, or its time was over.
        let transaction = self.database.begin()?;
        let name = transaction.token().to_string();
        match token {
            None => {
                let values: [Value<'_>; 3] = [month.into(), name.as_str().into(), false.into()];
                self.months.insert(&values)?;
            }
            Some(_) => {
                let update = self.months.prepare_update("primary")?;
                update.run(&[month.into()], |_, row| row.set(TOKEN, name.as_str()))?;
            }
        }
        // The row was committed after the transaction began, which is to see it.
        let mut transaction = transaction;
        transaction.refresh()?;
        Ok(Month::Open(transaction))
    }

    fn list(&self) -> Result<()> {
        let mut balances = Vec::new();
        let failed = self.accounts.scan(&self.database.snapshot(), |row| {
            match row.get::<u32>(0).and_then(|number| Ok((number, row.get::<i64>(BALANCE)?))) {
                Ok(account) => {
                    balances.push(account);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        balances.sort_unstable();
        balances.iter().for_each(|(number, balance)| println!("{number} {balance}"));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: bank POOL open|pay|list ...".into());
    };
    let bank = Bank::open(path)?;
    match command {
        ["open", employees, balance] => bank.open_accounts(employees.parse()?, balance.parse()?)?,
        ["pay", month, sum] => bank.pay(month, sum.parse()?)?,
        ["list"] => bank.list()?,
        _ => return Err("usage: bank POOL open|pay|list ...".into()),
    }
    Ok(())
}

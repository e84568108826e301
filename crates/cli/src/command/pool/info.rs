//! What `pool info` prints, and `pool create` of the new pool.

use remanent::PoolInfo;
use serde_json::json;

use super::{Target, physical_bytes};
use crate::command::output::{say, shown};
use crate::command::units::human_size;

pub(super) fn describe(info: &PoolInfo, target: &Target) {
    let uuid = uuid(&info.uuid);
    let physical = physical_bytes(&target.path);
    let roots = info.roots.iter();
    if target.json {
        let roots: Vec<_> =
            roots.map(|root| json!({"name": root.name, "type": root.root_type.name})).collect();
        say!(
            "{:#}",
            json!({
                "path": target.path,
                "backing": info.guarantee.backing.to_string(),
                "durability": info.created_durability.to_string(),
                "write_disturbance": info.guarantee.write_disturbance,
                "uuid": uuid,
                "format_version": info.format_version,
                "size_bytes": info.size,
                "size_max_bytes": info.size_max,
                "physical_bytes": physical,
                "created_unix_s": info.created_unix_s,
                "opens": info.opens,
                "clean": info.was_clean,
                "roots": roots,
            })
        );
        return;
    }
    say!("pool        {}", target.path.display());
    say!("backing     {}", info.guarantee.backing);
    say!("durability  {}", info.created_durability);
    if info.guarantee.write_disturbance {
        say!("medium      may leave garbage in what was being written");
    }
    say!("uuid        {uuid}");
    say!("format      {}", info.format_version);
    say!(
        "size        {} of at most {}, {} in use on the medium",
        human_size(info.size),
        human_size(info.size_max),
        human_size(physical)
    );
    say!("last closed {}", if info.was_clean { "properly" } else { "by a crash" });
    for root in roots {
        say!("root        {}: {}", shown(&root.name), shown(&root.root_type.name));
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

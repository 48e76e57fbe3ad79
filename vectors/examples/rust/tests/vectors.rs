//! Unit tests of a Rust client that use the vectors of BullMQ: `cargo test`.

use bullmq_vectors::{add_keys, delayed_score, pack, priority_score};
use serde_json::Value;

fn read(name: &str) -> Value {
    let folder = std::env::var("BULLMQ_VECTORS").unwrap_or_else(|_| "../..".into());
    let text =
        std::fs::read_to_string(format!("{folder}/{name}")).expect("the vectors can be read");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().expect("a list")
}

#[test]
fn packing() {
    for vector in list(&read("packing.json"), "vectors") {
        let hex: String = pack(&vector["value"])
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(vector["hex"], hex, "{}", vector["name"]);
    }
}

#[test]
fn scores() {
    let file = read("scores.json");
    let number = |vector: &Value, name: &str| vector[name].as_i64().unwrap();
    for vector in list(&file, "delayed") {
        let score = delayed_score(number(vector, "due_ms"), number(vector, "before"));
        assert_eq!(vector["score"].as_f64(), Some(score), "delayed: {vector}");
    }
    for vector in list(&file, "prioritized") {
        let score = priority_score(number(vector, "priority"), number(vector, "counter"));
        assert_eq!(
            vector["score"].as_f64(),
            Some(score),
            "prioritized: {vector}"
        );
    }
}

#[test]
fn adding_a_job() {
    for vector in list(&read("calls/queue.add.json"), "vectors") {
        let commands = list(vector, "commands").iter();
        for command in commands.filter(|command| command["script"] == "addStandardJob") {
            let keys = add_keys("bull", vector["client"]["queue"].as_str().unwrap());
            assert_eq!(
                command["keys"],
                serde_json::json!(keys),
                "{}",
                vector["name"]
            );
            assert_eq!(
                command["arguments"][1]["text"], vector["arguments"]["data_raw"],
                "{}",
                vector["name"]
            );
        }
    }
}

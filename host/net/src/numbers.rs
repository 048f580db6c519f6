//! Numbers as libcni passes them on. libcni reads each number of a list into a `float64`, and writes the `float64` for
//! each plugin. So a plugin gets 1400 where a template wrote `1400.0` or `14e2`.

use serde_json::{Map, Number, Value};

/// Writes each whole number of a plugin's input without fraction and exponent, as libcni does.
pub fn write_whole(input: &mut Map<String, Value>) {
    input.values_mut().for_each(write);
}

fn write(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole_number(number) {
                *number = whole;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(write),
        Value::Object(entries) => write_whole(entries),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns a whole number as Go writes it after it was read into a `float64`: 1400 for `1400.0` and `14e2`. The text
/// has the shortest digits that identify the `float64`. `None` for numbers with a fraction or beyond 64 bits.
#[must_use]
pub fn whole_number(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    let digits = format!("{float}");
    digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_libcni_makes_of_them() {
        for (written, passed_on) in [
            ("1400.0", "1400"),
            ("1e+06", "1000000"),
            ("1.5E3", "1500"),
            ("-7.0", "-7"),
            ("0", "0"),
            ("0.5", "0.5"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740993", "9007199254740992"),
            ("9223372036854775807", "9223372036854776000"),
            ("4294967295", "4294967295"),
        ] {
            let text = format!(r#"{{"a":[{{"b":{written}}}],"c":{written}}}"#);
            let mut input = serde_json::from_str(&text).unwrap();
            write_whole(&mut input);
            let expected = format!(r#"{{"a":[{{"b":{passed_on}}}],"c":{passed_on}}}"#);
            assert_eq!(Value::Object(input).to_string(), expected, "{written}");
        }
    }
}

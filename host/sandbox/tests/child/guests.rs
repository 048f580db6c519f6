//! Guests as text: each is a command with the smallest set of imports for its purpose.

/// Makes a command of the core instance `$program`, which exports `run`.
const COMMAND: &str = r#"
    (func $run (result (result)) (canon lift (core func $program "run")))
    (instance $command (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $command))"#;

/// Memory, and an allocator that never frees, for lowered functions.
const LIBC: &str = r#"
    (core module $libc
        (memory (export "memory") 1)
        (global $top (mut i32) (i32.const 16384))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $top)
            (global.set $top (i32.and (i32.add (i32.add (global.get $top) (local.get 3)) (i32.const 7)) (i32.const -8)))))
    (core instance $libc (instantiate $libc))"#;

/// Computes `body`, an expression of type i32: 0 for success. Has a memory and a table, and imports nothing.
pub fn running(body: &str) -> String {
    format!(
        r#"(component
            (core module $m (memory 1) (table 1 funcref) (func $run (export "run") (result i32) {body}))
            (core instance $program (instantiate $m))
            {COMMAND})"#
    )
}

/// Calls `forwarding.enable`, and fails if the call fails.
pub fn calling() -> String {
    format!(
        r#"(component
            (import "postern:cni/forwarding@0.1.0" (instance $forwarding
                (type $code' (enum "denied" "not-found" "exists" "invalid-argument" "invalid-handle" "unsupported"
                    "exhausted" "try-again" "deadline" "mismatch" "kernel" "io" "delegate"))
                (export "error-code" (type $code (eq $code')))
                (type $delegate' (record (field "code" u32) (field "msg" string) (field "details" string)))
                (export "delegate-error" (type $delegate (eq $delegate')))
                (type $error' (record (field "code" $code) (field "errno" (option s32)) (field "operation" string)
                    (field "object" string) (field "message" string) (field "hint" string)
                    (field "delegate" (option $delegate))))
                (export "error" (type $error (eq $error')))
                (export "enable" (func (result (result (error $error)))))))
            {LIBC}
            (core func $enable
                (canon lower (func $forwarding "enable") (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
            (core instance $imports (export "enable" (func $enable)))
            (core module $m
                (import "" "enable" (func $enable (param i32)))
                (import "libc" "memory" (memory 1))
                (func (export "run") (result i32)
                    (call $enable (i32.const 8))
                    (i32.load8_u (i32.const 8))))
            (core instance $program
                (instantiate $m (with "" (instance $imports)) (with "libc" (instance $libc))))
            {COMMAND})"#
    )
}

/// Writes `times` blocks of 4096 letters x to `stdout` or `stderr`.
pub fn writing(stream: &str, times: u32) -> String {
    format!(
        r#"(component
            (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
            (alias export $errors "error" (type $error'))
            (import "wasi:io/streams@0.2.0" (instance $streams
                (export "output-stream" (type $stream (sub resource)))
                (export "error" (type $error (eq $error')))
                (type $failure' (variant (case "last-operation-failed" (own $error)) (case "closed")))
                (export "stream-error" (type $failure (eq $failure')))
                (export "[method]output-stream.blocking-write-and-flush" (func
                    (param "self" (borrow $stream)) (param "contents" (list u8))
                    (result (result (error $failure)))))))
            (alias export $streams "output-stream" (type $stream'))
            (import "wasi:cli/{stream}@0.2.0" (instance $output
                (export "output-stream" (type $stream (eq $stream')))
                (export "get-{stream}" (func (result (own $stream))))))
            {LIBC}
            (core func $get (canon lower (func $output "get-{stream}")))
            (core func $write (canon lower
                (func $streams "[method]output-stream.blocking-write-and-flush") (memory (core memory $libc "memory"))))
            (core instance $imports (export "get" (func $get)) (export "write" (func $write)))
            (core module $m
                (import "" "get" (func $get (result i32)))
                (import "" "write" (func $write (param i32 i32 i32 i32)))
                (import "libc" "memory" (memory 1))
                (func (export "run") (result i32) (local $stream i32) (local $left i32)
                    (local.set $stream (call $get))
                    (local.set $left (i32.const {times}))
                    (memory.fill (i32.const 4096) (i32.const 120) (i32.const 4096))
                    (loop
                        (call $write (local.get $stream) (i32.const 4096) (i32.const 4096) (i32.const 8))
                        (if (i32.load8_u (i32.const 8)) (then (return (i32.const 1))))
                        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                        (br_if 0 (local.get $left)))
                    (i32.const 0)))
            (core instance $program
                (instantiate $m (with "" (instance $imports)) (with "libc" (instance $libc))))
            {COMMAND})"#
    )
}

/// Makes resources `veth.options` without end, and drops none.
pub fn hoarding() -> String {
    format!(
        r#"(component
            (import "postern:cni/veth@0.1.0" (instance $veth
                (export "options" (type $options (sub resource)))
                (export "[constructor]options" (func (result (own $options))))))
            (core func $new (canon lower (func $veth "[constructor]options")))
            (core instance $imports (export "new" (func $new)))
            (core module $m
                (import "" "new" (func $new (result i32)))
                (func (export "run") (result i32) (loop (drop (call $new)) (br 0)) (i32.const 0)))
            (core instance $program (instantiate $m (with "" (instance $imports))))
            {COMMAND})"#
    )
}

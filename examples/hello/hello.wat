;; A component for the world wasi:cli/command of WASI 0.2, written by hand: it greets, and then tells every ten seconds
;; for how many of them it has been running.
(component $hello
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))
  ))
  (alias export $error "error" (type $error-resource))

  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))
  ))
  (alias export $poll "pollable" (type $pollable-resource))

  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $output-stream (sub resource)))
    (alias outer $hello $error-resource (type $outer-error))
    (export "error" (type $error (eq $outer-error)))
    (type $stream-error-variant (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error-variant)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $output-stream))
      (param "contents" (list u8))
      (result (result (error $stream-error)))
    ))
  ))
  (alias export $streams "output-stream" (type $output-stream-resource))

  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer $hello $output-stream-resource (type $outer-output-stream))
    (export "output-stream" (type $output-stream (eq $outer-output-stream)))
    (export "get-stdout" (func (result (own $output-stream))))
  ))

  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer $hello $pollable-resource (type $outer-pollable))
    (export "pollable" (type $pollable (eq $outer-pollable)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))
  ))

  ;; Memory is a module of its own: the imports below are lowered into it before the program that uses them exists.
  (core module $memory-module
    (memory (export "memory") 1)
    (data (i32.const 16) "Hello from a WebAssembly component on picolet.\n")
    (data (i32.const 96) "Running for ")
    (data (i32.const 128) " seconds.\n")
  )
  (core instance $memory (instantiate $memory-module))

  (core func $get-stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory"))
  ))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $drop-pollable (canon resource.drop $pollable-resource))

  (core module $program-module
    (import "host" "memory" (memory 1))
    (import "host" "get-stdout" (func $get-stdout (result i32)))
    (import "host" "write" (func $write (param $stream i32) (param $text i32) (param $length i32) (param $result i32)))
    (import "host" "subscribe" (func $subscribe (param $nanoseconds i64) (result i32)))
    (import "host" "block" (func $block (param $pollable i32)))
    (import "host" "drop-pollable" (func $drop-pollable (param $pollable i32)))

    (global $stdout (mut i32) (i32.const 0))

    ;; The result of a write is put at 0, where nobody reads it: without its output this program has nothing to do.
    (func $print (param $text i32) (param $length i32)
      (call $write (global.get $stdout) (local.get $text) (local.get $length) (i32.const 0))
    )

    ;; Decimal digits are written from the right, ending at 192.
    (func $print-number (param $number i32)
      (local $start i32)
      (local.set $start (i32.const 192))
      (loop $digits
        (local.set $start (i32.sub (local.get $start) (i32.const 1)))
        (i32.store8
          (local.get $start)
          (i32.add (i32.const 0x30) (i32.rem_u (local.get $number) (i32.const 10)))
        )
        (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
        (br_if $digits (local.get $number))
      )
      (call $print (local.get $start) (i32.sub (i32.const 192) (local.get $start)))
    )

    (func $sleep (param $nanoseconds i64)
      (local $pollable i32)
      (local.set $pollable (call $subscribe (local.get $nanoseconds)))
      (call $block (local.get $pollable))
      (call $drop-pollable (local.get $pollable))
    )

    (func (export "run") (result i32)
      (local $seconds i32)
      (global.set $stdout (call $get-stdout))
      (call $print (i32.const 16) (i32.const 47))
      (loop $forever
        (call $sleep (i64.const 10_000_000_000))
        (local.set $seconds (i32.add (local.get $seconds) (i32.const 10)))
        (call $print (i32.const 96) (i32.const 12))
        (call $print-number (local.get $seconds))
        (call $print (i32.const 128) (i32.const 10))
        (br $forever)
      )
      (unreachable)
    )
  )
  (core instance $program (instantiate $program-module (with "host" (instance
    (export "memory" (memory $memory "memory"))
    (export "get-stdout" (func $get-stdout))
    (export "write" (func $write))
    (export "subscribe" (func $subscribe))
    (export "block" (func $block))
    (export "drop-pollable" (func $drop-pollable))
  ))))

  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface))
)

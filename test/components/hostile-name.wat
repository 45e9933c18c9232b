;; A name that would be JavaScript in what jco generates.
(component
  (core module $a (func (export "x']; globalThis.escaped = true; //") (result i32) (i32.const 0)))
  (core instance $a (instantiate $a))
  (core module $b
    (import "a" "x']; globalThis.escaped = true; //" (func $f (result i32)))
    (func (export "run") (result i32) (call $f))
  )
  (core instance $b (instantiate $b (with "a" (instance $a))))
  (func $run (result (result)) (canon lift (core func $b "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface))
)

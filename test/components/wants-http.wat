;; Imports two interfaces that nobody grants.
(component
  (import "wasi:http/outgoing-handler@0.2.0" (instance))
  (import "example:board/gpio@1.0.0" (instance))
  (core module $program-module
    (func (export "run") (result i32) (i32.const 0))
  )
  (core instance $program (instantiate $program-module))
  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface))
)

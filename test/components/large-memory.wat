;; Starts with 64 MiB of linear memory.
(component
  (core module $program-module
    (memory 1024)
    (func (export "run") (result i32) (i32.const 0))
  )
  (core instance $program (instantiate $program-module))
  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface))
)

;; Its module's start function writes to all of its memory of 14 MiB, before anything of it is run.
(component
  (core module $program-module
    (memory (export "memory") 224)
    (func $fill (memory.fill (i32.const 0) (i32.const 1) (i32.const 14680064)))
    (start $fill)
    (func (export "run") (result i32) (i32.const 0))
  )
  (core instance $program (instantiate $program-module))
  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface))
)

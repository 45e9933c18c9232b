;; Ends with a code of its own, which a C program cannot: the command adapter knows only success and failure.
(component
  (import "wasi:cli/exit@0.2.6" (instance $exit
    (export "exit-with-code" (func (param "status-code" u8)))
  ))
  (core func $exit (canon lower (func $exit "exit-with-code")))
  (core module $program-module
    (import "host" "exit" (func $exit (param i32)))
    (func (export "run") (result i32)
      (call $exit (i32.const 42))
      (unreachable)
    )
  )
  (core instance $program (instantiate $program-module (with "host" (instance (export "exit" (func $exit))))))
  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.6" (instance $run-interface))
)

;; Offers something, but nothing to run.
(component
  (core module $program-module
    (func (export "answer") (result i32) (i32.const 42))
  )
  (core instance $program (instantiate $program-module))
  (func (export "answer") (result u32) (canon lift (core func $program "answer")))
)

"""The address level: instructions over named buffers.

```
irfunction @main {
  declare
    %x = weight f32[2x3] mutable
    %y = weight f32[2x3] mutable
  program
    %zero = alloc f32[]
    splat @out %zero {value=0.0}
    max @out %y, @in %x, @in %zero
    dealloc @out %zero
}
```
"""

"""The graph level: strongly typed values, use lists, no memory.

```
module {
  placeholder %x : f32[2x3]
  placeholder %y : f32[2x3]
  function @main {
    %relu = relu(%x) : f32[2x3]
    save(%relu, %y)
  }
}
```
"""

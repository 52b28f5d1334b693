// A program of another project: it uses the installed headers and links the installed library.
#include <cstdio>

#include "base/hash.h"
#include "tensor/shape.h"

int main() {
  const strata::Shape shape{3, 5};
  std::printf("%lld elements\n", static_cast<long long>(shape.elements()));
  return shape.elements() == 15 ? 0 : 1;
}

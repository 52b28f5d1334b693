// A program of another project, built with the installed headers and library.
#include <cstdio>

#include "base/hash.h"
#include "tensor/shape.h"

int main() {
  const strata::Shape shape{3, 5};
  std::printf("%lld elements\n", static_cast<long long>(shape.elements()));
  return shape.elements() == 15 ? 0 : 1;
}

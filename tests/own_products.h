#pragma once

#include "registry/kernels/own_products.h"

namespace trainrun::test {

/// While it lives, kernels compute products themselves.
class OwnProducts {
 public:
  OwnProducts() { kernels::use_own_products(true); }
  ~OwnProducts() { kernels::use_own_products(before_); }
  OwnProducts(const OwnProducts&) = delete;
  OwnProducts& operator=(const OwnProducts&) = delete;
  OwnProducts(OwnProducts&&) = delete;
  OwnProducts& operator=(OwnProducts&&) = delete;

 private:
  bool before_ = kernels::uses_own_products();
};

}  // namespace trainrun::test

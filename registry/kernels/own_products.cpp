#include "registry/kernels/own_products.h"

#include <atomic>

namespace trainrun::kernels {
namespace {

std::atomic<bool> own_products = false;

}  // namespace

void use_own_products(bool whether) { own_products = whether; }
bool uses_own_products() { return own_products; }

}  // namespace trainrun::kernels

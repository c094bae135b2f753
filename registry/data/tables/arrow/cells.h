#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>

#include "registry/data/tables/arrow_library.h"

namespace trainrun {

/// Whether `read_cell` reads values of this type.
bool is_read(const arrow::DataType& type, ObjectColumns objects);

/// The value of a row of an array, in place of what the cell held. In objects, what is null is left out.
void read_cell(const arrow::Array& array, int64_t row, Cell& cell);

}  // namespace trainrun

#include "registry/data/tables/arrow/cells.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

namespace trainrun {
namespace {

using arrow::Type;

template <class ArrayType>
auto at(const arrow::Array& array, int64_t row) {
  return static_cast<const ArrayType&>(array).Value(row);
}

void set_integer(int64_t value, Cell& cell) {
  cell.kind = Cell::Kind::kInteger;
  cell.integer = value;
}

/// NaN is how many programs write that there is no value.
void set_number(double value, Cell& cell) {
  if (std::isnan(value)) return;
  cell.kind = Cell::Kind::kNumber;
  cell.number = value;
}

void set_text(std::string_view value, Cell& cell) {
  cell.kind = Cell::Kind::kText;
  cell.text.assign(value);
}

int64_t floor_divided(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

/// "2024-05-31", or the number itself where it is not in a year from 1 to 9999.
std::string date_text(int64_t days) {
  constexpr int64_t kFirst = -719162, kLast = 2932896;  // 0001-01-01, 9999-12-31
  if (days < kFirst || days > kLast) return std::to_string(days) + " days since 1970";
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  char text[16];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()));
  return text;
}

/// "2024-05-31T18:30:05.250000", and a Z where the file says that it is in UTC.
std::string timestamp_text(int64_t value, const arrow::TimestampType& type) {
  constexpr int64_t kSecondsADay = 86400;
  int64_t ticks = 1;  // a second
  int digits = 0;
  switch (type.unit()) {
    case arrow::TimeUnit::SECOND:
      break;
    case arrow::TimeUnit::MILLI:
      ticks = 1'000, digits = 3;
      break;
    case arrow::TimeUnit::MICRO:
      ticks = 1'000'000, digits = 6;
      break;
    case arrow::TimeUnit::NANO:
      ticks = 1'000'000'000, digits = 9;
      break;
  }
  const int64_t seconds = floor_divided(value, ticks);
  const int64_t days = floor_divided(seconds, kSecondsADay);
  const int64_t fraction = value - seconds * ticks;
  const auto of_day = static_cast<int>(seconds - days * kSecondsADay);
  char time[32];
  std::snprintf(time, sizeof time, "T%02d:%02d:%02d", of_day / 3600, of_day / 60 % 60, of_day % 60);
  std::string text = date_text(days) + time;
  if (fraction != 0) {
    const std::string places = std::to_string(fraction);
    text += "." + std::string(static_cast<size_t>(digits) - places.size(), '0') + places;
  }
  return text + (type.timezone().empty() ? "" : "Z");
}

void read_items(const arrow::Array& items, int64_t begin, int64_t count, Cell& cell) {
  cell.kind = Cell::Kind::kList;
  cell.list.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) read_cell(items, begin + i, cell.list[static_cast<size_t>(i)]);
}

template <class ListType>
void read_list(const arrow::Array& array, int64_t row, Cell& cell) {
  const auto& list = static_cast<const ListType&>(array);
  read_items(*list.values(), list.value_offset(row), list.value_length(row), cell);
}

void read_object(const arrow::Array& array, int64_t row, Cell& cell) {
  const auto& object = static_cast<const arrow::StructArray&>(array);
  cell.kind = Cell::Kind::kObject;
  cell.list.clear();
  for (int i = 0; i < object.num_fields(); ++i) {
    Cell value;
    read_cell(*object.field(i), row, value);
    if (value.kind == Cell::Kind::kMissing) continue;
    cell.list.push_back(std::move(value));
    cell.keys.push_back(object.struct_type()->field(i)->name());
  }
}

/// True if it is a number of one of the plain types.
bool read_number(const arrow::Array& array, int64_t row, Cell& cell) {
  switch (array.type_id()) {
    case Type::BOOL:
      set_integer(at<arrow::BooleanArray>(array, row) ? 1 : 0, cell);
      cell.is_boolean = true;
      return true;
    case Type::INT8:
      return set_integer(at<arrow::Int8Array>(array, row), cell), true;
    case Type::INT16:
      return set_integer(at<arrow::Int16Array>(array, row), cell), true;
    case Type::INT32:
      return set_integer(at<arrow::Int32Array>(array, row), cell), true;
    case Type::INT64:
      return set_integer(at<arrow::Int64Array>(array, row), cell), true;
    case Type::UINT8:
      return set_integer(at<arrow::UInt8Array>(array, row), cell), true;
    case Type::UINT16:
      return set_integer(at<arrow::UInt16Array>(array, row), cell), true;
    case Type::UINT32:
      return set_integer(at<arrow::UInt32Array>(array, row), cell), true;
    case Type::UINT64: {
      const uint64_t value = at<arrow::UInt64Array>(array, row);
      const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      fits ? set_integer(static_cast<int64_t>(value), cell) : set_number(static_cast<double>(value), cell);
      return true;
    }
    case Type::HALF_FLOAT:
      return set_number(arrow::util::Float16::FromBits(at<arrow::HalfFloatArray>(array, row)).ToDouble(), cell), true;
    case Type::FLOAT:
      return set_number(static_cast<double>(at<arrow::FloatArray>(array, row)), cell), true;
    case Type::DOUBLE:
      return set_number(at<arrow::DoubleArray>(array, row), cell), true;
    default:
      return false;
  }
}

/// True if it is of a type that is given as text: decimals, too, so that no digit is lost before they are a number.
bool read_text(const arrow::Array& array, int64_t row, Cell& cell) {
  constexpr int64_t kMillisecondsADay = 86'400'000;
  switch (array.type_id()) {
    case Type::STRING:
      return set_text(static_cast<const arrow::StringArray&>(array).GetView(row), cell), true;
    case Type::LARGE_STRING:
      return set_text(static_cast<const arrow::LargeStringArray&>(array).GetView(row), cell), true;
    case Type::STRING_VIEW:
      return set_text(static_cast<const arrow::StringViewArray&>(array).GetView(row), cell), true;
    case Type::DECIMAL32:
      return set_text(static_cast<const arrow::Decimal32Array&>(array).FormatValue(row), cell), true;
    case Type::DECIMAL64:
      return set_text(static_cast<const arrow::Decimal64Array&>(array).FormatValue(row), cell), true;
    case Type::DECIMAL128:
      return set_text(static_cast<const arrow::Decimal128Array&>(array).FormatValue(row), cell), true;
    case Type::DECIMAL256:
      return set_text(static_cast<const arrow::Decimal256Array&>(array).FormatValue(row), cell), true;
    case Type::DATE32:
      return set_text(date_text(at<arrow::Date32Array>(array, row)), cell), true;
    case Type::DATE64:
      return set_text(date_text(floor_divided(at<arrow::Date64Array>(array, row), kMillisecondsADay)), cell), true;
    case Type::TIMESTAMP: {
      const auto& type = static_cast<const arrow::TimestampType&>(*array.type());
      return set_text(timestamp_text(at<arrow::TimestampArray>(array, row), type), cell), true;
    }
    default:
      return false;
  }
}

}  // namespace

bool is_read(const arrow::DataType& type, ObjectColumns objects) {
  switch (type.id()) {
    case Type::NA:
    case Type::BOOL:
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::UINT64:
    case Type::HALF_FLOAT:
    case Type::FLOAT:
    case Type::DOUBLE:
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::DECIMAL32:
    case Type::DECIMAL64:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIMESTAMP:
      return true;
    case Type::DICTIONARY:
      return is_read(*static_cast<const arrow::DictionaryType&>(type).value_type(), objects);
    case Type::EXTENSION:
      return is_read(*static_cast<const arrow::ExtensionType&>(type).storage_type(), objects);
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
      return is_read(*type.field(0)->type(), objects);
    case Type::STRUCT:
      for (const auto& field : type.fields()) {
        if (!is_read(*field->type(), objects)) return false;
      }
      return objects == ObjectColumns::kRead;
    default:
      return false;
  }
}

void read_cell(const arrow::Array& array, int64_t row, Cell& cell) {
  cell.kind = Cell::Kind::kMissing;
  cell.is_boolean = false;
  cell.keys.clear();
  if (array.IsNull(row) || read_number(array, row, cell) || read_text(array, row, cell)) return;
  switch (array.type_id()) {
    case Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return read_cell(*dictionary.dictionary(), dictionary.GetValueIndex(row), cell);
    }
    case Type::EXTENSION:
      return read_cell(*static_cast<const arrow::ExtensionArray&>(array).storage(), row, cell);
    case Type::LIST:
      return read_list<arrow::ListArray>(array, row, cell);
    case Type::LARGE_LIST:
      return read_list<arrow::LargeListArray>(array, row, cell);
    case Type::FIXED_SIZE_LIST:
      return read_list<arrow::FixedSizeListArray>(array, row, cell);
    default:
      return read_object(array, row, cell);
  }
}

}  // namespace trainrun

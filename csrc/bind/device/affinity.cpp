#include "addresses.hpp"

namespace pyattnorg::bind {
namespace {

void norms(const std::string& number, Address x, std::int64_t n, Address out, Address work, const Place& place) {
    require(n >= 0, "n must not be negative");
    with_number(number, place, [&](auto pointer) {
        using In = Pointed<decltype(pointer)>;
        cuda::norms<In>(at<const In>(x), n, at<double>(out), at<void>(work), at<void>(place.stream));
    });
}

void cosines(const std::string& number, Address x, std::int64_t n, Address work, const Place& place) {
    require(n > 0, "x must not be empty");
    with_real(number, place, [&](auto pointer) {
        cuda::cosines(at<Pointed<decltype(pointer)>>(x), n, at<void>(work), at<void>(place.stream));
    });
}

void gaussian(const std::string& number, Address x, std::int64_t n, Address widths, const Place& place) {
    require(n > 0, "x must not be empty");
    with_real(number, place, [&](auto pointer) {
        cuda::gaussian(at<Pointed<decltype(pointer)>>(x), n, at<const double>(widths), at<void>(place.stream));
    });
}

void exponential(const std::string& number, Address x, std::int64_t n, double width, const Place& place) {
    require(n > 0 && width > 0, "x must not be empty, and the width positive");
    with_real(number, place, [&](auto pointer) {
        cuda::exponential(at<Pointed<decltype(pointer)>>(x), n, width, at<void>(place.stream));
    });
}

void ranked(const std::string& number, Address values, std::int64_t n, std::int64_t rank, Address out, Address work,
            const Place& place) {
    require(rank >= 0 && rank < n && n < std::int64_t{1} << 32, "rank must be one of n numbers, fewer than 2^32");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::ranked(at<const T>(values), n, rank, at<T>(out), at<void>(work), at<void>(place.stream));
    });
}

}  // namespace

void register_device_affinity(py::module_& m) {
    using namespace py::literals;
    m.def("norms_work", &cuda::norms_work, "n"_a);
    m.def("norms", &norms, "number"_a, "x"_a, "n"_a, "out"_a, "work"_a, "place"_a);
    m.def("cosines", &cosines, "number"_a, "x"_a, "n"_a, "work"_a, "place"_a);
    m.def("gaussian", &gaussian, "number"_a, "x"_a, "n"_a, "widths"_a, "place"_a);
    m.def("exponential", &exponential, "number"_a, "x"_a, "n"_a, "width"_a, "place"_a);
    m.def("ranked_work", &cuda::ranked_work);
    m.def("ranked", &ranked, "number"_a, "values"_a, "n"_a, "rank"_a, "out"_a, "work"_a, "place"_a);
}

}  // namespace pyattnorg::bind

/* Counts the calls that make the host wait for the GPU, and the time in them. Loaded with
 * LD_PRELOAD. The counts are in the file TANDEM_WAITS, as two 64-bit numbers: calls, nanoseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t *counts;

__attribute__((constructor)) static void map_counts(void) {
    const char *path = getenv("TANDEM_WAITS");
    int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, 2 * sizeof *counts) != 0) return;
    void *memory = mmap(NULL, 2 * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) counts = memory;
    close(file);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add(uint64_t start) {
    if (!counts) return;
    __atomic_fetch_add(&counts[0], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counts[1], now() - start, __ATOMIC_RELAXED);
}

#define COUNTED(name, parameters, arguments)                        \
    int name parameters {                                           \
        static int(*real) parameters;                               \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);       \
        uint64_t start = now();                                     \
        int result = real ? real arguments : 999;                   \
        add(start);                                                 \
        return result;                                              \
    }

COUNTED(cudaStreamSynchronize, (void *stream), (stream))
COUNTED(cudaEventSynchronize, (void *event), (event))
COUNTED(cudaDeviceSynchronize, (void), ())
COUNTED(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind))

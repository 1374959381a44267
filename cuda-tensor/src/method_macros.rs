//! Methods of `TensorOps` that differ only in their names and their operations.

/// Operations on two numbers: on two tensors, in place, and on a tensor and a scalar.
macro_rules! binary {
    ($(fn $name:ident, fn $scalar:ident, fn $assign:ident: $operation:ident, $doc:literal, $of_scalar:literal, $in_place:literal;)*) => {$(
        #[doc = $doc]
        fn $name<I>(self, other: I) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: Number,
            I: IntoTensor<Element = Self::Element>,
        {
            let parameters = (Binary::$operation, stringify!($name));
            both(self, other).then(bind(pairs::map2, parameters))
        }

        #[doc = $in_place]
        fn $assign<I>(self, other: I) -> impl DeviceOp<Output = Self::Form>
        where
            Self::Form: TensorOutput,
            Self::Element: Number,
            I: IntoTensor<Element = Self::Element>,
        {
            let parameters = (Binary::$operation, stringify!($assign));
            both(self, other).then(bind(pairs::map2_assign, parameters))
        }

        #[doc = $of_scalar]
        fn $scalar(self, scalar: Self::Element) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: Number,
        {
            self.map_scalar(Binary::$operation, scalar)
        }
    )*};
}

/// Operations on one number.
macro_rules! unary {
    ($(fn $name:ident: $bound:ident, $map:ident, $function:ident::$operation:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        fn $name(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: $bound,
        {
            self.$map($function::$operation)
        }
    )*};
}

pub(super) use {binary, unary};
